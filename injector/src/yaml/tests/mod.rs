mod files;
mod reading;
mod writing;
