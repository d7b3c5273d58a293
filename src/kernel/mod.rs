//! The only code that does I/O on the machine.
