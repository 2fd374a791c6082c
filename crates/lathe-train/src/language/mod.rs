//! The built-in language: text whose entropy is known, byte by byte.
