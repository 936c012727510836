//! The header of an npy file: a version, a length, and a Python dictionary {'descr': type, 'fortran_order': bool,
//! 'shape': tuple}, read by a parser for just that. Nothing is evaluated.

use super::FORMAT;
use crate::{DType, Error, Result, Shape, formats::quoted};
use std::io::{ErrorKind, Read};
use tallow_graph::MAX_RANK;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read. That of an array of numbers takes some hundred bytes.
const MAX_HEADER: u32 = 65536;
/// Where the data begins is a multiple of this.
const ALIGNMENT: usize = 64;

/// NumPy's name of a type without its byte order, and Tallow's type for it. Of two names, the first is written.
const DTYPES: &[(&str, DType)] = &[
    ("u1", DType::U8),
    ("b1", DType::U8),
    ("i1", DType::I8),
    ("u2", DType::U16),
    ("i2", DType::I16),
    ("u4", DType::U32),
    ("i4", DType::I32),
    ("u8", DType::U64),
    ("i8", DType::I64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
];

fn bad(message: impl Into<String>) -> Error {
    Error::format(FORMAT, message)
}

/// What a file says of its array, checked: its elements take no more bytes than memory has addresses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub dtype: DType,
    pub shape: Shape,
    /// The first axis is the one whose elements are neighbours.
    pub fortran: bool,
    /// The highest byte of an element comes first.
    pub big_endian: bool,
}

impl Header {
    /// Reads up to where the data begins.
    pub(super) fn read(from: &mut impl Read) -> Result<Self> {
        let mut magic = [0; 6];
        let got = fill(from, &mut magic)?;
        if got != magic.len() {
            return Err(bad(format!("this is no npy file, or one truncated after {got} bytes")));
        }
        if &magic != MAGIC {
            return Err(bad("this is no npy file: it does not begin with \\x93NUMPY"));
        }
        let [major, minor] = exactly(from)?;
        let length = match (major, minor) {
            (1, 0) => u32::from(u16::from_le_bytes(exactly(from)?)),
            (2 | 3, 0) => u32::from_le_bytes(exactly(from)?),
            _ => return Err(bad(format!("version {major}.{minor} of the format is none of 1.0, 2.0 and 3.0"))),
        };
        if length > MAX_HEADER {
            return Err(bad(format!("the header claims {length} bytes; {MAX_HEADER} is the most")));
        }
        let mut dict = vec![0; length as usize];
        let got = fill(from, &mut dict)?;
        if got != dict.len() {
            return Err(bad(format!("truncated: the header claims {length} bytes, but {got} follow")));
        }
        Parser { text: &dict, at: 0 }.header()
    }

    /// The bytes of the array's elements.
    pub(super) fn bytes(&self) -> usize {
        self.shape.elem_count() * self.dtype.size_in_bytes()
    }

    /// The bytes that come before the data of a row-major, little-endian array.
    pub(super) fn write(dtype: DType, shape: &Shape) -> Result<Vec<u8>> {
        let Some((name, _)) = DTYPES.iter().find(|row| row.1 == dtype) else {
            let what = if dtype.is_quantized() { "dequantize it" } else { "convert it with to_dtype(DType::F32)" };
            return Err(bad(format!("NumPy has no {dtype}: {what} first")));
        };
        let order = if dtype.size_in_bytes() == 1 { '|' } else { '<' };
        let sizes = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        // A tuple of one has a comma.
        let comma = if shape.rank() == 1 { "," } else { "" };
        let dict = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({sizes}{comma}), }}");
        let before = MAGIC.len() + 4;
        let end = (before + dict.len() + 1).next_multiple_of(ALIGNMENT);
        let length = u16::try_from(end - before).map_err(|_| bad("the shape takes too long a header"))?;
        let mut out = [&MAGIC[..], &[1, 0], &length.to_le_bytes(), dict.as_bytes()].concat();
        out.resize(end - 1, b' ');
        out.push(b'\n');
        Ok(out)
    }
}

/// Reads until the buffer is full or nothing comes; returns how much came.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while let Some(rest) = buffer.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(bad(format!("the header cannot be read ({e})"))),
        }
    }
    Ok(got)
}

fn exactly<const N: usize>(from: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match fill(from, &mut bytes)? {
        got if got == N => Ok(bytes),
        _ => Err(bad("truncated before the header's end")),
    }
}

/// Of the dictionary. Every error names the byte, counted from the dictionary's first.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            let twice = match key {
                b"descr" => descr.replace(self.descr()?).is_some(),
                b"fortran_order" => fortran.replace(self.boolean()?).is_some(),
                b"shape" => shape.replace(self.tuple()?).is_some(),
                other => return Err(self.error(format!("unknown key {}", shown(other)))),
            };
            if twice {
                return Err(self.error(format!("the key {} comes twice", shown(key))));
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        if self.peek().is_some() {
            return Err(self.error("something follows the dictionary"));
        }
        let missing = |key: &str| bad(format!("the header has no '{key}'"));
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        // Empty axes count as one, so that every part of the shape can be counted too.
        let bytes = shape.iter().try_fold(dtype.size_in_bytes(), |n, &d| n.checked_mul(d.max(1)));
        if bytes.is_none_or(|n| isize::try_from(n).is_err()) {
            return Err(bad(format!("an array of shape {shape:?} is larger than memory")));
        }
        Ok(Header { dtype, shape, fortran, big_endian })
    }

    /// A type and whether its highest byte comes first.
    fn descr(&mut self) -> Result<(DType, bool)> {
        if matches!(self.peek(), Some(b'[' | b'(' | b'{')) {
            return Err(self.error("the array is structured; save its fields one by one"));
        }
        let text = self.string()?;
        let (order, name) = match text {
            [order @ (b'<' | b'>' | b'=' | b'|'), name @ ..] => (*order, name),
            name => (b'=', name),
        };
        let found = DTYPES.iter().find(|row| row.0.as_bytes() == name);
        let (_, dtype) = found.ok_or_else(|| {
            let text = shown(text);
            bad(format!("no dtype of Tallow is NumPy's {text}: convert the array with astype before it is saved"))
        })?;
        Ok((*dtype, order == b'>' && dtype.size_in_bytes() > 1))
    }

    fn boolean(&mut self) -> Result<bool> {
        self.space();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("True or False is missing"))
    }

    /// `()`, `(2,)`, `(2, 3)`. Python 2 wrote `2L`.
    fn tuple(&mut self) -> Result<Shape> {
        self.expect(b'(')?;
        let mut sizes = Vec::with_capacity(MAX_RANK);
        while !self.take(b')') {
            if sizes.len() == MAX_RANK {
                return Err(self.error(format!("the array has more than {MAX_RANK} dimensions")));
            }
            sizes.push(self.size()?);
            if !self.take(b',') {
                if sizes.len() == 1 {
                    return Err(self.error("a tuple of one size needs a comma"));
                }
                self.expect(b')')?;
                break;
            }
        }
        Ok(Shape::new(&sizes))
    }

    fn size(&mut self) -> Result<usize> {
        self.space();
        let digits = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        let text = self.rest().get(..digits).and_then(|digits| std::str::from_utf8(digits).ok());
        let size = text.and_then(|text| text.parse::<usize>().ok());
        let size = size.ok_or_else(|| self.error(format!("a size must be a whole number up to {}", usize::MAX)))?;
        self.at += digits;
        if self.rest().first() == Some(&b'L') {
            self.at += 1;
        }
        Ok(size)
    }

    /// Between single or double quotes; without escapes, which NumPy has no use for here.
    fn string(&mut self) -> Result<&'a [u8]> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else { return Err(self.error("a string is missing")) };
        self.at += 1;
        let rest = self.rest();
        let end = rest.iter().position(|&b| b == quote || b == b'\\' || b == b'\n');
        match end {
            Some(end) if rest.get(end) == Some(&quote) => {
                self.at += end + 1;
                Ok(rest.get(..end).unwrap_or_default())
            }
            _ => Err(self.error("a string does not end")),
        }
    }

    fn expect(&mut self, what: u8) -> Result<()> {
        if self.take(what) { Ok(()) } else { Err(self.error(format!("'{}' is missing", char::from(what)))) }
    }

    /// Whether this comes next; if so, goes past it.
    fn take(&mut self, what: u8) -> bool {
        let found = self.peek() == Some(what);
        self.at += usize::from(found);
        found
    }

    /// What comes next, after spaces.
    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.rest().first().copied()
    }

    fn space(&mut self) {
        self.at += self.rest().iter().take_while(|b| matches!(b, b' ' | b'\n' | b'\r' | b'\t')).count();
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, what: impl std::fmt::Display) -> Error {
        bad(format!("in the header, at its byte {}: {what}", self.at))
    }
}

fn shown(text: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(text))
}
