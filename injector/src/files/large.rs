//! Files of any size: input that is read more than once, and output that is written once all of it is known.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _, Write as _};

use tempfile::{SpooledTempFile, spooled_tempfile};

use super::{called, plain, terminal};

/// What is kept in memory; the rest goes to a temporary file.
const IN_MEMORY: usize = 4 << 20;
const BUFFER: usize = 64 << 10;

/// A file that can be read again from its start.
#[derive(Debug)]
pub(crate) struct Input {
    name: String,
    /// The content of what can be read only once: standard input, a pipe.
    copy: Option<SpooledTempFile>,
}

impl Input {
    /// Opens a file; `-` is standard input. What can be read only once is read to its end.
    /// Errors: what the system says.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let copy = if name == "-" {
            Some(copy(&mut io::stdin().lock())?)
        } else {
            let mut file = File::open(name)?;
            let again = file.metadata()?.is_file();
            if again { None } else { Some(copy(&mut file)?) }
        };
        Ok(Self { name: name.to_owned(), copy })
    }

    /// The name of the input in messages.
    pub(crate) fn called(&self) -> &str {
        called(&self.name)
    }

    /// The directory that it is in.
    pub(crate) fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or(".", |(folder, _)| folder)
    }

    /// The name of the input without the directory.
    pub(crate) fn base(&self) -> &str {
        self.name.rsplit_once('/').map_or(self.name.as_str(), |(_, base)| base)
    }

    /// Reads it from its start.
    /// Errors: what the system says.
    pub(crate) fn open(&mut self) -> io::Result<impl BufRead> {
        let reader: Box<dyn Read + '_> = match &mut self.copy {
            Some(copy) => {
                copy.rewind()?;
                Box::new(copy)
            }
            None => Box::new(File::open(&self.name)?),
        };
        Ok(BufReader::with_capacity(BUFFER, reader))
    }
}

fn copy(from: &mut dyn Read) -> io::Result<SpooledTempFile> {
    let mut to = spooled_tempfile(IN_MEMORY);
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(to),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..length).unwrap_or_default()).map_err(|error| of_copy(&error))?;
    }
}

/// A problem of the temporary file, whose place `TMPDIR` says.
fn of_copy(error: &io::Error) -> io::Error {
    let folder = std::env::temp_dir();
    io::Error::new(
        error.kind(),
        format!(
            "a temporary file in {}: {}: set TMPDIR to a directory with more space",
            folder.display(),
            plain(error)
        ),
    )
}

/// Text that is collected before any of it is written.
#[derive(Debug)]
pub(crate) struct Spool {
    text: SpooledTempFile,
    empty: bool,
    last: u8,
}

impl Default for Spool {
    fn default() -> Self {
        Self { text: spooled_tempfile(IN_MEMORY), empty: true, last: 0 }
    }
}

impl Spool {
    /// Appends a text.
    /// Errors: what the system says of the temporary file.
    pub(crate) fn push(&mut self, text: &str) -> io::Result<()> {
        if let Some(last) = text.bytes().last() {
            (self.empty, self.last) = (false, last);
            self.text.write_all(text.as_bytes()).map_err(|error| of_copy(&error))?;
        }
        Ok(())
    }

    /// Whether there is no text.
    pub(crate) const fn is_empty(&self) -> bool {
        self.empty
    }

    /// Whether the last line has an end, or there is none.
    pub(crate) const fn at_line_start(&self) -> bool {
        self.empty || self.last == b'\n'
    }

    /// The text, or the file that it is in if it is large.
    /// Errors: what the system says of the temporary file.
    pub(crate) fn finish(mut self) -> io::Result<(String, Option<File>)> {
        self.text.rewind()?;
        if self.text.is_rolled() {
            return Ok((String::new(), Some(self.text.into_file()?)));
        }
        let mut text = String::new();
        self.text.read_to_string(&mut text)?;
        Ok((text, None))
    }
}

/// Writes what is in `from` to a file, or to standard output for `-`.
///
/// # Errors
///
/// What the system says.
pub fn write_from(name: &str, mut from: &File) -> io::Result<()> {
    from.rewind()?;
    if name != "-" {
        return io::copy(&mut from, &mut File::create(name)?).map(|_| ());
    }
    let mut buffer = vec![0; BUFFER];
    let mut kept = 0;
    loop {
        let read = from.read(buffer.get_mut(kept..).unwrap_or_default())?;
        let all = buffer.get(..kept + read).unwrap_or_default();
        // A character may reach into what is read next.
        let valid = all.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        if valid.is_empty() {
            return if read == 0 && kept == 0 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
        }
        terminal::show(valid, false)?;
        let written = valid.len();
        kept = kept + read - written;
        buffer.copy_within(written..written + kept, 0);
    }
}
