//! What the wasm part asks of a module: whether its functions use 128-bit vectors. A stripped module no longer says
//! what it was built with, so this reads the types of the functions' local variables (WebAssembly core specification,
//! section 5.4.12).

/// The section of function bodies.
const CODE: u8 = 10;
/// The type of a local variable that is a vector.
const V128: u8 = 0x7b;

/// Reads from the front of `bytes`; `None` past the end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, count: usize) -> Option<Reader<'a>> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(Reader(taken))
    }

    /// An unsigned number in LEB128.
    fn number(&mut self) -> Option<usize> {
        let mut value = 0u32;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return usize::try_from(value).ok();
            }
        }
        None
    }
}

/// How many functions have a local variable that is a 128-bit vector; `None` where the bytes are no module.
pub fn functions_with_vectors(module: &[u8]) -> Option<usize> {
    let mut sections = Reader(module.strip_prefix(b"\0asm\x01\0\0\0")?);
    while !sections.0.is_empty() {
        let id = sections.byte()?;
        let size = sections.number()?;
        let mut section = sections.take(size)?;
        if id == CODE {
            let mut found = 0;
            for _ in 0..section.number()? {
                let size = section.number()?;
                let mut body = section.take(size)?;
                let mut vectors = false;
                for _ in 0..body.number()? {
                    body.number()?;
                    // Other types of one byte are all that rustc makes.
                    vectors |= body.byte()? == V128;
                }
                found += usize::from(vectors);
            }
            return Some(found);
        }
    }
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::functions_with_vectors;

    /// Two functions, of which one has two locals of type i32 and one of the given type.
    fn module(local: u8) -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        bytes.extend([0, 2, 1, b'x']);
        bytes.extend([10, 11, 2, 2, 0, 0x0b, 6, 2, 2, 0x7f, 1, local, 0x0b]);
        bytes
    }

    #[test]
    fn counts_functions_with_vectors() {
        assert_eq!(functions_with_vectors(&module(0x7b)), Some(1));
        assert_eq!(functions_with_vectors(&module(0x7d)), Some(0));
        assert_eq!(functions_with_vectors(b"\0asm\x01\0\0\0"), Some(0));
    }

    #[test]
    fn refuses_what_is_no_module() {
        assert_eq!(functions_with_vectors(b"\x7fELF"), None);
        let whole = module(0x7b);
        for end in [9, 13, whole.len() - 1] {
            assert_eq!(functions_with_vectors(&whole[..end]), None, "cut at {end}");
        }
    }
}
