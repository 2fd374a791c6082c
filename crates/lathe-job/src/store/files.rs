//! A folder: a file for each document and for each log.

use super::{Log, Store, busy, check, whole};
use crate::{Error, Result};
use lathe_model::folder::write_aside;
use lathe_search::Error as SearchError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A folder, which is made when something is written.
#[derive(Debug, Clone)]
pub struct Files {
    folder: PathBuf,
}

impl Files {
    /// The store of a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        check(name)?;
        Ok(self.folder.join(name))
    }

    fn make_folder(&self) -> Result<()> {
        std::fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder))
    }
}

impl Store for Files {
    fn place(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name)?;
        match std::fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.path(name)?;
        self.make_folder()?;
        Ok(write_aside(&path, |out| out.write_all(content))?)
    }

    fn log(&self, name: &str) -> Result<Box<dyn Log>> {
        let path = self.path(name)?;
        self.make_folder()?;
        Ok(Box::new(Lines::open(&path)?))
    }
}

/// A file that is appended to, and locked as long as it is.
struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    fn open(path: &Path) -> lathe_search::Result<Self> {
        let io = || SearchError::io(path);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(&path.display().to_string())),
            Err(TryLockError::Error(error)) => return Err(io()(error)),
        }
        let lines = Self { path: path.into(), file };
        let text = lines.text()?;
        let whole = whole(&text);
        if whole < text.len() {
            lines.file.set_len(whole as u64).map_err(io())?;
        }
        Ok(lines)
    }

    fn text(&self) -> lathe_search::Result<Vec<u8>> {
        let mut file = &self.file;
        let mut text = Vec::new();
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text));
        read.map_err(SearchError::io(&self.path))?;
        Ok(text)
    }
}

impl Log for Lines {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn lines(&self) -> lathe_search::Result<Vec<Vec<u8>>> {
        Ok(super::lines(&self.text()?))
    }

    fn append(&mut self, line: &[u8]) -> lathe_search::Result<()> {
        self.file.write_all(&[line, b"\n"].concat()).map_err(SearchError::io(&self.path))
    }
}
