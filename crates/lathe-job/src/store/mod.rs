//! Where jobs keep what they find: documents, which are written whole (a table of measured blocks), and logs, which grow
//! line by line (what a search has evaluated). A [`Store`] has both, by name; every one there is stands in [`STORES`] and
//! passes [`conformance()`].

mod conformance;
mod files;
mod memory;

pub use conformance::conformance;
pub use files::Files;
pub use lathe_search::record::Log;
pub use memory::Memory;

use crate::{Error, Result};
use etcetera::{BaseStrategy, choose_base_strategy};
use lathe_core::{Registry, shorten};
use lathe_search::profile::ProfileTable;
use lathe_search::record::Record;
use std::path::PathBuf;

/// Keeps documents and logs by name.
pub trait Store: Send + Sync {
    /// Where something of this name is, for messages.
    fn place(&self, name: &str) -> String;
    /// What is kept under a name, if anything is.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Writes a document, whole or not at all, in place of what was kept under its name.
    fn write(&self, name: &str, content: &[u8]) -> Result<()>;
    /// Opens a log to be appended to, or begins one. Half a last line, of a writer that was killed, is dropped. An error
    /// where the log has another writer.
    fn log(&self, name: &str) -> Result<Box<dyn Log>>;
}

/// A store that can be named.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Opens the one at a place, a folder for instance.
    pub open: fn(&str) -> Result<Box<dyn Store>>,
}

/// Every store.
pub const STORES: &[Entry] = &[
    Entry { name: "files", about: "files of a folder", open: |place| Ok(Box::new(Files::new(place))) },
    Entry {
        name: "memory",
        about: "nothing but memory, for as long as the process lives",
        open: |place| Ok(Box::new(Memory::new(place))),
    },
];

/// The store of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    STORES.iter().find(|entry| entry.name == name)
}

/// The folder of tables: the user's cache, or what LATHE_CACHE says.
pub fn cache_folder() -> PathBuf {
    match std::env::var_os("LATHE_CACHE").filter(|folder| !folder.is_empty()) {
        Some(folder) => folder.into(),
        None => choose_base_strategy().map_or_else(|_| std::env::temp_dir(), |base| base.cache_dir()).join("lathe"),
    }
}

/// The table of a name, if there is one.
pub fn read_table(store: &dyn Store, name: &str) -> Result<Option<ProfileTable>> {
    let text = store.read(name)?;
    Ok(text.map(|text| ProfileTable::parse(&text, store.place(name))).transpose()?)
}

/// Keeps a table under a name.
pub fn write_table(store: &dyn Store, name: &str, table: &ProfileTable) -> Result<()> {
    store.write(name, &table.to_json(store.place(name))?)
}

/// Opens the record of a name; `warn` is told of damaged lines.
pub fn open_record(store: &dyn Store, name: &str, registry: &Registry, warn: &mut dyn FnMut(String)) -> Result<Record> {
    Ok(Record::open(store.log(name)?, registry, warn)?)
}

/// An error where a name is more than a name.
fn check(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.len() <= 200 && name.chars().all(plain) {
        true => Ok(()),
        false => {
            Err(Error::data("store", format!("the name `{}`", shorten(name)), "letters, digits, `.`, `_` and `-`"))
        }
    }
}

/// The error of a second writer.
fn busy(place: &str) -> lathe_search::Error {
    lathe_search::Error::data(place, "a record that another process is at work on", "one that has no other writer")
}

/// The lines of a text, each without its end.
fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\n").unwrap_or(line).to_vec()).collect()
}

/// Bytes of the whole lines at the beginning of a text.
fn whole(text: &[u8]) -> usize {
    text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
}
