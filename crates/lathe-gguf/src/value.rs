//! The values of keys: numbers of all widths, truths, texts, and lists of one of these.

use crate::Result;
use crate::cursor::Cursor;
use std::fmt::Display;

const BOOL: u32 = 7;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

macro_rules! numbers {
    ($($name:ident $number:ident $id:literal),*) => {
        /// The value of a key.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Value {
            $($name($number),)*
            Bool(bool),
            Text(String),
            Array(Array),
        }

        /// A list of values of one type.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum Array {
            $($name(Vec<$number>),)*
            Bool(Vec<bool>),
            Text(Vec<String>),
        }

        impl Value {
            /// The number of its type in files.
            fn id(&self) -> u32 {
                match self {
                    $(Self::$name(_) => $id,)*
                    Self::Bool(_) => BOOL,
                    Self::Text(_) => TEXT,
                    Self::Array(_) => ARRAY,
                }
            }

            /// Reads a value of a type.
            pub(crate) fn read(cursor: &mut Cursor, place: &dyn Display, id: u32) -> Result<Self> {
                Ok(match id {
                    $($id => Self::$name($number::from_le_bytes(cursor.take(place)?)),)*
                    BOOL => {
                        let [byte] = cursor.take(place)?;
                        Self::Bool(truth(cursor, place, byte)?)
                    }
                    TEXT => Self::Text(cursor.text(place)?),
                    ARRAY => Self::Array(Array::read(cursor, place)?),
                    _ => return Err(cursor.wrong(place, format_args!("a value of type {id}"), "a type from 0 to 12")),
                })
            }

            /// Writes it without its type.
            fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(number) => out.extend(number.to_le_bytes()),)*
                    Self::Bool(truth) => out.push((*truth).into()),
                    Self::Text(text) => write_text(text, out),
                    Self::Array(array) => array.write(out),
                }
            }
        }

        impl Array {
            /// How many values it has.
            pub fn len(&self) -> usize {
                match self {
                    $(Self::$name(list) => list.len(),)*
                    Self::Bool(list) => list.len(),
                    Self::Text(list) => list.len(),
                }
            }

            /// Its values one by one.
            pub fn get(&self, index: usize) -> Option<Value> {
                match self {
                    $(Self::$name(list) => list.get(index).copied().map(Value::$name),)*
                    Self::Bool(list) => list.get(index).copied().map(Value::Bool),
                    Self::Text(list) => list.get(index).cloned().map(Value::Text),
                }
            }

            fn read(cursor: &mut Cursor, place: &dyn Display) -> Result<Self> {
                let id = u32::from_le_bytes(cursor.take(place)?);
                let what = "values of a list";
                Ok(match id {
                    $($id => {
                        const SIZE: usize = size_of::<$number>();
                        let count = cursor.count(place, what, SIZE as u64)?;
                        let bytes = cursor.bytes(place, count * SIZE)?;
                        Self::$name(bytes.as_chunks().0.iter().map(|&bytes| $number::from_le_bytes(bytes)).collect())
                    })*
                    BOOL => {
                        let count = cursor.count(place, what, 1)?;
                        let bytes = cursor.bytes(place, count)?;
                        let truths = bytes.into_iter().map(|byte| truth(cursor, place, byte));
                        Self::Bool(truths.collect::<Result<_>>()?)
                    }
                    TEXT => {
                        let count = cursor.count(place, what, 8)?;
                        Self::Text((0..count).map(|_| cursor.text(place)).collect::<Result<_>>()?)
                    }
                    _ => {
                        let found = format_args!("a list of type {id}");
                        return Err(cursor.wrong(place, found, "a list of numbers, truths or texts"));
                    }
                })
            }

            fn write(&self, out: &mut Vec<u8>) {
                let id = match self {
                    $(Self::$name(_) => $id,)*
                    Self::Bool(_) => BOOL,
                    Self::Text(_) => TEXT,
                };
                out.extend(id.to_le_bytes());
                out.extend((self.len() as u64).to_le_bytes());
                match self {
                    $(Self::$name(list) => list.iter().for_each(|number| out.extend(number.to_le_bytes())),)*
                    Self::Bool(list) => out.extend(list.iter().map(|&truth| u8::from(truth))),
                    Self::Text(list) => list.iter().for_each(|text| write_text(text, out)),
                }
            }
        }
    };
}

numbers!(U8 u8 0, I8 i8 1, U16 u16 2, I16 i16 3, U32 u32 4, I32 i32 5, F32 f32 6, U64 u64 10, I64 i64 11, F64 f64 12);

impl Value {
    /// A whole number, of whatever width.
    pub fn int(&self) -> Option<i64> {
        match *self {
            Self::U8(number) => Some(number.into()),
            Self::I8(number) => Some(number.into()),
            Self::U16(number) => Some(number.into()),
            Self::I16(number) => Some(number.into()),
            Self::U32(number) => Some(number.into()),
            Self::I32(number) => Some(number.into()),
            Self::U64(number) => number.try_into().ok(),
            Self::I64(number) => Some(number),
            _ => None,
        }
    }

    /// A number that need not be whole. What was rounded to f32 is the shortest decimal that rounds to it.
    pub fn real(&self) -> Option<f64> {
        match *self {
            Self::F32(number) if number.is_finite() => number.to_string().parse().ok(),
            Self::F32(number) => Some(number.into()),
            Self::F64(number) => Some(number),
            _ => self.int().map(|number| number as f64),
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A truth.
    pub fn truth(&self) -> Option<bool> {
        match *self {
            Self::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// A list of texts.
    pub fn texts(&self) -> Option<&[String]> {
        match self {
            Self::Array(Array::Text(texts)) => Some(texts),
            _ => None,
        }
    }

    /// A list.
    pub fn array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Writes its type and itself.
    pub(crate) fn write_typed(&self, out: &mut Vec<u8>) {
        out.extend(self.id().to_le_bytes());
        self.write(out);
    }
}

impl Array {
    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A byte that is 0 or 1.
fn truth(cursor: &Cursor, place: &dyn Display, byte: u8) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(cursor.wrong(place, format_args!("{other} for a truth"), "0 or 1")),
    }
}

/// A text: its length and its bytes.
pub(crate) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
