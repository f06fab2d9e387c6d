//! From the log to the tables.
