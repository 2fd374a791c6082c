//! Damaged copies of files, drawn from a seed: bytes that change, are left out, come twice, come from another file, or are
//! words that files of the kind are made of.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What parsers are sensitive to.
const WORDS: [&[u8]; 24] = [
    b"0",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"18446744073709551615",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"\"",
    b"\n",
    b"\r\n",
    b"=",
    b"[[",
    b"x99",
    b"(((((((",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x00\x00\x00\x00",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x99\x82",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"GGUF",
];

/// Damages files.
pub struct Damage {
    random: ChaCha8Rng,
    files: Vec<Vec<u8>>,
}

impl Damage {
    /// Of these files, the same for the same seed.
    pub fn new(files: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed), files }
    }

    /// A damaged copy of one of the files.
    pub fn copy(&mut self, file: usize) -> Vec<u8> {
        let mut copy = self.files[file].clone();
        for _ in 0..self.random.random_range(1..=4) {
            self.once(&mut copy);
        }
        copy
    }

    /// A place in a file, or right behind it.
    fn place(&mut self, len: usize) -> usize {
        self.random.random_range(0..=len)
    }

    fn once(&mut self, data: &mut Vec<u8>) {
        let at = self.place(data.len());
        match self.random.random_range(0..7) {
            0 if at < data.len() => data[at] ^= 1 << self.random.random_range(0..8),
            1 if at < data.len() => data[at] = self.random.random(),
            2 => {
                let end = self.place(data.len() - at) + at;
                data.drain(at..end);
            }
            3 => {
                let end = self.place((data.len() - at).min(64)) + at;
                let again = data[at..end].to_vec();
                data.splice(at..at, again);
            }
            4 => {
                let other = self.random.random_range(0..self.files.len());
                let from = self.place(self.files[other].len());
                let end = from + self.place((self.files[other].len() - from).min(256));
                let piece = self.files[other][from..end].to_vec();
                data.splice(at..at, piece);
            }
            5 => data.truncate(at),
            _ => {
                let word = WORDS[self.random.random_range(0..WORDS.len())];
                let end = (at + if self.random.random() { word.len() } else { 0 }).min(data.len());
                data.splice(at..end, word.iter().copied());
            }
        }
    }
}
