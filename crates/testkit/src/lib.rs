//! Process harness, watchdog and crash runner for the tests.
