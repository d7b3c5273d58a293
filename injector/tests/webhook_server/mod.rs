//! The webhook as a process: the real program, real sockets, a real client.

mod ca_out;
mod certificates;
mod client;
mod config;
mod connections;
mod flags;
mod frames;
mod health;
mod load;
mod logs;
mod memory;
mod requests;
mod server;
mod shutdown;
mod slow;
