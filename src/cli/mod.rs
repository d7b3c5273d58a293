//! Flags, environment and config file: what was asked for, as text with its origin.
