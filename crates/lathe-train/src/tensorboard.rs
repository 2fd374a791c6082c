//! TensorBoard event files: records of protocol buffers with checksums, of which scalars need little.
//!
//! A record is its length (u64), the length's checksum, the bytes, and their checksum; checksums are CRC-32C, rotated
//! and shifted ("masked"). `Event` has the fields wall_time (1, double), step (2, varint), file_version (3, string) and
//! summary (5), which repeats value (1) of tag (1, string) and simple_value (2, float).

use crate::{Error, Result};
use crc::{CRC_32_ISCSI, Crc};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// CRC-32C.
const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// A file that TensorBoard reads.
pub struct EventFile {
    path: PathBuf,
    file: File,
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl EventFile {
    /// Begins a file in a folder.
    pub fn create(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let name = format!("events.out.tfevents.{:010}.lathe.{}", now() as u64, std::process::id());
        let path = folder.join(name);
        let file = File::create(&path).map_err(Error::io(&path))?;
        let mut events = Self { path, file };
        let mut event = event(0);
        bytes_field(&mut event, 3, b"brain.Event:2");
        events.record(&event)?;
        Ok(events)
    }

    /// Scalars of a step.
    pub fn scalars(&mut self, step: u32, scalars: &[(String, f64)]) -> Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            bytes_field(&mut entry, 1, tag.as_bytes());
            entry.push(2 << 3 | 5); // simple_value, 32 bits
            entry.extend((*value as f32).to_le_bytes());
            bytes_field(&mut summary, 1, &entry);
        }
        let mut event = event(step);
        bytes_field(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, data: &[u8]) -> Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(data);
        record.extend(masked_crc(data).to_le_bytes());
        self.file.write_all(&record).map_err(Error::io(&self.path))
    }
}

fn event(step: u32) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1]; // wall_time, 64 bits
    event.extend(now().to_le_bytes());
    event.push(2 << 3); // step, varint
    varint(&mut event, step.into());
    event
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field of a string, of bytes or of a message.
fn bytes_field(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn masked_crc(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
