"""What other people's tests may build on: contract suites, real servers, sample sessions."""
