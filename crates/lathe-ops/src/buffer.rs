//! Buffers for activations, kept when they are dropped and handed out again: a training step needs the same
//! sizes again and again, and fresh pages cost as much as a pass over them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

static FREE: Mutex<Option<HashMap<usize, Vec<Vec<f32>>>>> = Mutex::new(None);

/// A slice of floats from the pool.
#[derive(Debug, Default)]
pub struct Buf {
    data: Vec<f32>,
}

impl Buf {
    /// `len` floats of any value, to be overwritten.
    pub fn any(len: usize) -> Self {
        let mut free = FREE.lock().expect("nothing panics while it holds the pool");
        let found = free.as_mut().and_then(|free| free.get_mut(&len)).and_then(Vec::pop);
        drop(free);
        Self { data: found.unwrap_or_else(|| vec![0.0; len]) }
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buf = Self::any(len);
        buf.fill(0.0);
        buf
    }

    /// A copy of a slice.
    pub fn copy(from: &[f32]) -> Self {
        let mut buf = Self::any(from.len());
        buf.copy_from_slice(from);
        buf
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if !self.data.is_empty() {
            let data = std::mem::take(&mut self.data);
            let mut free = FREE.lock().expect("nothing panics while it holds the pool");
            free.get_or_insert_default().entry(data.len()).or_default().push(data);
        }
    }
}

impl Deref for Buf {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }
}

impl Clone for Buf {
    fn clone(&self) -> Self {
        Self::copy(self)
    }
}

/// Gives the memory of all free buffers back, for when sizes change.
pub fn release() {
    *FREE.lock().expect("nothing panics while it holds the pool") = None;
}
