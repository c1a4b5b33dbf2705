# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Kill an export at every checkpoint, and finish it
#
# | | |
# |:---|:---|
# | **Time** | 12 minutes to read, one minute to run |
# | **Before this** | nothing; you needn't have run a job queue before |
# | **Needs** | Linux or macOS, and `make install`; no network, no account, no second terminal |
# | **Safe because** | everything happens in a temporary folder, with invented sessions; only processes that this lesson starts are killed |

# %% [markdown]
# ## What you will do
#
# You start an export of three recorded sessions, kill its process at each place where something was just
# saved, give the same command again, and compare what comes out.
#
# ## What you will be able to do
#
# - say what a checkpoint promises, and what it doesn't;
# - predict which work is done again after a crash;
# - tell from evidence, and not from what a program says of itself, whether a resume was right;
# - explain why doing a step twice does no harm here.
#
# ## What you need
#
# Nine words. Come back to them whenever you like.
#
# | word | what it means here |
# |:---|:---|
# | **job** | a piece of work that somebody asked for: "export these three sessions" |
# | **attempt** | one try at a job, by one process; a job may need several |
# | **step** | a part of a job that ends with something worth keeping |
# | **digest** | the SHA-256 of some bytes: a name that only these bytes have; we show its first 12 digits |
# | **store** | a folder that keeps bytes in files, each under its digest |
# | **checkpoint** | a note: "this step is done, and this is the digest of what it left" |
# | **ledger** | the database file that holds the jobs, their attempts and their checkpoints |
# | **artifact** | what the job was for, here a bundle of files; its id is the digest of its list of contents |
# | **SIGKILL** | the signal that ends a process at once; it can't save anything, and it can't say goodbye |
#
# The longer explanations are in the [glossary](../docs/lessons.md#glossary).

# %% tags=["hide-input"] jupyter={"source_hidden": true}
from autocode.jobs.testing.lessons import start

lesson = start("03")
lesson

# %% [markdown]
# ## The normal run
#
# Three sessions lie in a folder. A session is the record of one conversation with a coding agent.

# %%
lesson.sessions()

# %% [markdown]
# First, an export that nobody disturbs. `lesson.run` starts a real `autocode-jobs` process, waits for its end,
# and tells you how it ended. `home` names a data folder; each experiment below gets one of its own.

# %%
lesson.fresh("undisturbed")
lesson.run("export", home="undisturbed")

# %% [markdown]
# *Ended with status 0* is the program's own word for "it went well". We want to hear it from somebody else, so we
# open the ledger's file and read the checkpoints in it:

# %%
lesson.ledger("undisturbed")

# %% [markdown]
# Five steps, five checkpoints. `scan` makes the list of files, each `read` turns one session into a common form,
# and `bundle` writes the list of contents, the *manifest*. (The twelve digits behind a session's name belong to its
# bytes. `varies` stands for the one digest that isn't the same for you: the list of files names the folder that they
# lie in, which is new each time.)
#
# A checkpoint is only a note. The bytes themselves are in the store. We look into that folder, unpack each file
# and compute its SHA-256 anew; `whole` says whether it is what the file's name promises:

# %%
lesson.store("undisturbed")

# %% [markdown]
# Each `read` left two objects: the session itself, and a small entry that names it. The checkpoint names the entry.
#
# One number remains, the artifact's id. We take the bundle that was delivered and hash its manifest ourselves:

# %%
lesson.artifact("undisturbed")

# %% [markdown]
# It is the digest in the last checkpoint. Remember it: whatever we do to this export, **this is what must come
# out**.

# %% [markdown]
# ## Predict
#
# Now the same export again in an empty data folder. As soon as its second checkpoint is saved, its process gets
# SIGKILL. Then we give the same command once more.
#
# **Which session files does the second run open?**
#
# - **a** All three. The first process is dead, and what it knew died with it.
# - **b** Tuesday and Wednesday. Monday's checkpoint outlived the process.
# - **c** None. Prefect sees the crash and finishes the job before we come back.
# - **d** All three, and a second, different artifact comes out, since this is another run.
#
# Choose before you go on. Being wrong here is the best way to remember it.

# %%
prediction = "?"  # write a, b, c or d

# %% [markdown]
# ## Crash
#
# The places where this program can be told to die have names; they are listed in
# [crash.py](../src/autocode/jobs/crash.py). `step.after-checkpoint:2` is the moment right after the second
# checkpoint was committed. There the process sends itself SIGKILL; nothing of it runs after that, no handler, no
# cleaning up. (Outside of lessons the environment variable `AUTOCODE_CRASH` takes the same names.)

# %%
lesson.fresh("killed-after-2")
lesson.run("export", home="killed-after-2", crash_at="step.after-checkpoint:2")

# %% [markdown]
# What is left? The ledger's file first:

# %%
lesson.ledger("killed-after-2")

# %% [markdown]
# Two checkpoints, as ordered. And who knows that the process is dead? We ask two witnesses about the attempt: the
# ledger's file, and Prefect, the system that ran it.

# %%
lesson.attempts("killed-after-2")

# %% [markdown]
# ## What happened
#
# **Nobody knows.** The ledger holds an attempt that began and has no end. Prefect says `Running`, and would say so
# for ever: the only process that could have told it otherwise is gone. That rules out **c** already. A dead process
# doesn't report its own death; somebody has to look. Here it is the next command that looks.
#
# ## Resume
#
# We give the same command again. This time a third witness takes part: the kernel of the operating system notes
# every session file that is opened in the meantime.

# %%
with lesson.watch() as seen:
    print(lesson.run("export", home="killed-after-2"))
seen

# %% [markdown]
# Monday was never touched. Not "read quickly", not "read and thrown away": its file was not opened. What does the
# ledger say?

# %%
lesson.ledger("killed-after-2")

# %% [markdown]
# Checkpoints 1 and 2 are those of attempt 1. Attempt 2 added three, and the digests are those of the
# undisturbed run, line by line. Prefect, asked over its own API about the steps of attempt 2, tells the same
# story in its own words. And what of the attempt whose death nobody had noticed?

# %%
print(lesson.prefect("killed-after-2"), "\n")
lesson.attempts("killed-after-2")

# %% [markdown]
# `Cached` means: this was asked for, and a checkpoint answered. Before it is believed, every stored byte that it names
# is read and compared with its checksum ([`is_whole`](../src/autocode/jobs/engine/context.py) does that). You will need
# this for the exercise.
#
# Attempt 1 is `crashed` now. The second run found the first one's lock free. The kernel drops such a lock when its
# process dies, so a free lock proves that the process is dead. Only then was attempt 1 ended, in the ledger and in
# Prefect, and attempt 2 begun.
#
# ## Every boundary
#
# One lucky moment proves little. So we kill at *every* checkpoint boundary, each time in an empty data folder, each
# time followed by the same command:

# %%
boundaries = [f"killed-after-{number}" for number in (1, 2, 3, 4, 5)]
for number in (1, 3, 4, 5):  # number 2 is done
    home = f"killed-after-{number}"
    lesson.fresh(home)
    lesson.run("export", home=home, crash_at=f"step.after-checkpoint:{number}")
    lesson.run("export", home=home)

results = lesson.compare(["undisturbed", *boundaries])
results

# %% [markdown]
# Read the last two columns from top to bottom: **one artifact id, one final checkpoint**, wherever the process
# died. The artifact's id is hashed from the delivered file, the last checkpoint comes from the ledger's file.
#
# Now the columns in the middle. What was done in attempt 1 and what was done later add up to five in every line:
# no step is missing, none was counted twice. And as many steps as attempt 1 had done are `Cached` in Prefect.
# The same numbers as a picture:

# %%
lesson.timeline(boundaries, title="Killed after a checkpoint: finished steps are reused, the rest is done")

# %% [markdown]
# ## Break it
#
# So far the process died *after* a checkpoint. We were kind. A step does two things that last: it writes its objects
# into the store, and then it writes the checkpoint into the ledger. These are two places, and no single write
# reaches both. So there is a gap between the two, and a process can die in it.
#
# We move the crash into that gap. `scan` writes one object, Monday two, and Tuesday's entry is number 5:
# `step.after-object:5` is the moment when it is in the store, and the ledger doesn't know yet.

# %%
lesson.fresh("in-the-gap")
print(lesson.run("export", home="in-the-gap", crash_at="step.after-object:5"), "\n")
gap = lesson.objects("in-the-gap")
lesson.store("in-the-gap")

# %% [markdown]
# The two objects of a few thousand bytes are entries. One is named by Monday's checkpoint. Look the other one up in the
# ledger of the undisturbed run: it is Tuesday's. Here it is whole, and **no checkpoint names it**. As far as the
# ledger can tell, Tuesday was never read. So the next run has no choice:

# %%
with lesson.watch() as seen:
    print(lesson.run("export", home="in-the-gap"))
seen

# %% [markdown]
# Tuesday was opened again: **the step ran twice**. That can't be avoided. Anybody who promises "exactly once" for
# steps that leave something outside of the ledger promises too much. What can be had is that the second time does
# no harm. Here is the cure at work; the last column compares each file with the one that lay there after the kill:

# %%
lesson.store("in-the-gap", since=gap)

# %% [markdown]
# Tuesday's two objects were *kept*: same file, not written again. The second time the step came to the same bytes, so
# to the same digest, so to the same name, and found the name taken. A name made of the time, or a counter, or a random
# number would have left two copies, and somebody would have to guess which one counts.
#
# That is what **idempotent** means: doing it twice leaves what doing it once leaves.

# %%
lesson.timeline(["killed-after-2", "in-the-gap"], title="After a checkpoint, and in the gap before one")

# %% [markdown]
# ## What was told meanwhile
#
# Suppose that somebody watched this job, in a browser or through an API. What would they have been told? The ledger
# keeps every event; these are the ones of the job that died in the gap:

# %%
lesson.events("in-the-gap")

# %% [markdown]
# `queued`, `running`, and after the crash `retrying`, never "failed", and the number of
# checkpoints never fell. `complete` came last, once the artifact had been found in the store with its digest. If the crashes
# had gone on, the last word would have been `dead`, with a reason. What each word promises, and what it doesn't, is
# written down in [the contract](../docs/contract.md#five-states).

# %% [markdown]
# ## Check
#
# Four claims of this lesson, each held against what the witnesses said:

# %%
gap_result = lesson.compare(["in-the-gap"])
lesson.check(
    (
        "seven exports have one artifact id",
        set(results.column("artifact"))
        == set(gap_result.column("artifact"))
        == {lesson.artifact("undisturbed")},
        "the id is made from the content alone: no time, no attempt, no folder",
    ),
    (
        "the final checkpoint is the artifact's id, every time",
        results.column("last checkpoint") == results.column("artifact"),
        "the job is complete only when its last step has committed what it left",
    ),
    (
        "what attempt 1 had committed, attempt 2 didn't do again",
        results.column("Cached")[1:] == results.column("done in 1")[1:],
        "each checkpoint was looked up, and its object was whole",
    ),
    (
        "a step that ran twice left its objects once",
        lesson.store("in-the-gap", since=gap).column("file").count("kept") == len(gap),
        "the same bytes have the same name, and a name is taken only once",
    ),
)

# %% [markdown]
# And your prediction (the cell is folded, since it holds the answers):

# %% tags=["hide-input"] jupyter={"source_hidden": true}
lesson.answer(
    prediction,
    right="b",
    options={
        "a": "What a process knew is lost, what it had committed is not: that lay in two places outside of it.",
        "b": "Monday's checkpoint was in the ledger and its object in the store, and neither lives in the process.",
        "c": "Prefect went on saying Running: a process that is dead can't report, and nobody else was looking.",
        "d": "The id depends on the content alone, and the content is the same.",
    },
)

# %% [markdown]
# ## Exercise
#
# A checkpoint says "this step is done". Suppose that between the crash and the resume the disk damages the object that
# it names. **Does the next run believe the note, or the bytes?**
#
# The cell below runs as it is, without any damage. Add one line between the two runs: `lesson.damage("read monday",
# home="rotten")` changes one byte of the object that Monday's checkpoint names. Before you run it, write down how many
# steps will be `Cached`, and what the artifact's id will be.

# %%
lesson.fresh("rotten")
print(lesson.run("export", home="rotten", crash_at="step.after-checkpoint:2"))
# your line goes here
print(lesson.run("export", home="rotten"))
lesson.compare(["rotten"])

# %% [markdown]
# <details>
# <summary><b>Hint</b></summary>
#
# `Cached` is only said after the stored bytes were compared with their checksum. What can a program do with a finished
# step whose bytes are gone? It is in the position of somebody who never did it.
#
# </details>

# %% tags=["solution", "hide-cell"] jupyter={"outputs_hidden": true, "source_hidden": true}
lesson.fresh("rotten-solved")
print(lesson.run("export", home="rotten-solved", crash_at="step.after-checkpoint:2"))
print(lesson.damage("read monday", home="rotten-solved"))
with lesson.watch() as seen:
    print(lesson.run("export", home="rotten-solved"))
print(seen, "\n")
print(lesson.prefect("rotten-solved"), "\n")
lesson.check(
    (
        "the artifact is the same in spite of the damage",
        lesson.artifact("rotten-solved") == lesson.artifact("undisturbed"),
        "Monday was read again from the file that it came from",
    ),
    (
        "one step was Cached, not two",
        lesson.compare(["rotten-solved"]).column("Cached") == [1],
        "a checkpoint counts only while its bytes are whole",
    ),
)

# %% [markdown]
# **Solution.** (The cell above is folded; open it to see the line and what came of it.) The bytes are believed. The damaged object is
# moved to quarantine, where somebody can look at it; the note is struck out; Monday is read a second time; and the
# same artifact comes out. One step is `Cached` instead of two. A checkpoint that was believed without a look would
# have put the damage into the bundle, under a name that promises the opposite.

# %% [markdown]
# ## What you saw
#
# A process was killed at every checkpoint boundary, and once in the gap before one. Each time the same command finished
# the job, did again only what had not been committed, and brought out the same artifact id and the same final
# checkpoint. What made it so is not that nothing ran twice, but that running twice changed nothing.
#
# ## In practice
#
# This lesson simplified five things.
#
# - **Starting.** To spare you the three seconds in which a process loads its libraries, the lesson forks each run from a
#   process that has loaded them already. It is a process of its own all the same, and runs what you would type. The tests
#   of the project do the same experiment with freshly started commands, and at
#   [every crash point](../docs/ledger.md#what-is-true-after-a-kill).
# - **One server.** All data folders share one private Prefect server. Outside of lessons each has its own.
# - **Three sessions.** Of many sessions, those that are finished close together share a commit, and Prefect shows them
#   as one task run, which is faster. A kill never falls into the middle of a commit: all of it is there, or nothing.
# - **One machine.** The lock that proves a death works on the machine where the process ran. From elsewhere a
#   [lease](../docs/engine.md#how-a-dead-process-is-noticed) decides, which takes some seconds longer.
# - **SIGKILL is not a power cut.** What a process wrote survives its death in any case. To survive a power cut it must be
#   forced onto the disk first, in [the right order](../docs/store.md#writing-in-this-order).
#
# And one thing was easy because of what this job does: it only writes files. A step that sends a mail can't find out by
# a digest whether the mail is gone already. It needs an *idempotency key*, and even that leaves one case open.
#
# ## Next
#
# - [All lessons, and what each of them covers](../docs/lessons.md)
# - [The engine](../docs/engine.md): all places where a job can be killed
# - [How to export your own sessions](../docs/howto-export.md)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
lesson.stop()
