//! Buffers for activations, kept when they are dropped and handed out again: a training step needs the same
//! sizes again and again, and fresh pages cost as much as a pass over them. The layers of a searched model differ in
//! width, so a buffer that is a little too large will do.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Free buffers by their length.
static FREE: Mutex<BTreeMap<usize, Vec<Vec<f32>>>> = Mutex::new(BTreeMap::new());

/// A slice of floats from the pool.
#[derive(Debug, Default)]
pub struct Buf {
    data: Vec<f32>,
    len: usize,
}

impl Buf {
    /// `len` floats of any value, to be overwritten.
    pub fn any(len: usize) -> Self {
        let mut free = FREE.lock().expect("nothing panics while it holds the pool");
        let found = free.range_mut(len..=2 * len).find_map(|(_, buffers)| buffers.pop());
        drop(free);
        Self { data: found.unwrap_or_else(|| vec![0.0; len]), len }
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
            free.entry(data.len()).or_default().push(data);
        }
    }
}

impl Deref for Buf {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[..self.len]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.len]
    }
}

impl Clone for Buf {
    fn clone(&self) -> Self {
        Self::copy(self)
    }
}

/// Gives the memory of all free buffers back.
pub fn release() {
    FREE.lock().expect("nothing panics while it holds the pool").clear();
}
