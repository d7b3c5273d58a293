//! The only code that does I/O on the machine.

pub mod process;
pub mod restore;
pub mod tools;
