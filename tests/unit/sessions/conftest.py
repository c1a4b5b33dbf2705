"""The tests over real transcripts are collected only where there are some."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("AUTOCODE_SAMPLES") else ["test_session_samples.py"]
