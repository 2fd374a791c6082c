//! Nothing but memory: for tests, and for front ends that keep things in their own way.

use super::{Log, Store, busy, check, lines, whole};
use crate::Result;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Content {
    texts: HashMap<String, Vec<u8>>,
    /// Logs that have a writer.
    open: HashSet<String>,
}

/// A store in memory; clones of it are the same store.
#[derive(Debug, Clone)]
pub struct Memory {
    name: String,
    content: Arc<Mutex<Content>>,
}

impl Memory {
    /// An empty store; the name is for messages.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), content: Arc::default() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn place(&self, name: &str) -> String {
        format!("{}: {name}", self.name)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        check(name)?;
        Ok(self.content().texts.get(name).cloned())
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        check(name)?;
        self.content().texts.insert(name.into(), content.to_vec());
        Ok(())
    }

    fn log(&self, name: &str) -> Result<Box<dyn Log>> {
        check(name)?;
        let mut content = self.content();
        if !content.open.insert(name.into()) {
            return Err(busy(&self.place(name)).into());
        }
        let text = content.texts.entry(name.into()).or_default();
        text.truncate(whole(text));
        Ok(Box::new(Writer { name: name.into(), store: self.clone() }))
    }
}

/// The one writer of a log.
struct Writer {
    name: String,
    store: Memory,
}

impl Log for Writer {
    fn place(&self) -> String {
        self.store.place(&self.name)
    }

    fn lines(&self) -> lathe_search::Result<Vec<Vec<u8>>> {
        Ok(self.store.content().texts.get(&self.name).map_or_else(Vec::new, |text| lines(text)))
    }

    fn append(&mut self, line: &[u8]) -> lathe_search::Result<()> {
        let mut content = self.store.content();
        content.texts.entry(self.name.clone()).or_default().extend([line, b"\n"].concat());
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.content().open.remove(&self.name);
    }
}
