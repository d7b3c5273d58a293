mod block;
mod files;
mod reading;
mod writing;
