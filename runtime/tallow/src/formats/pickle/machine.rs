//! The pickle machine: opcodes of protocols 2 to 5 on a stack of values. Each opcode reads forward, and makes at most one thing
//! or moves what is on the stack, so that a pickle takes time and memory in proportion to its length, whatever it says.
//! Opcodes and their arguments are those of Python's `pickletools`.

use super::{
    bad,
    heap::{Heap, Span, Value, put},
    torch,
};
use crate::Result;
use std::collections::HashMap;

/// Runs the pickle that `heap.pickle` has at `at`: its value, and where it ends.
pub(super) fn run(heap: &mut Heap<'_>, at: usize) -> Result<(Value, usize)> {
    let mut machine = Machine { at, heap, stack: vec![], marks: vec![], memo: HashMap::new() };
    loop {
        let start = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(value)) => return Ok((value, machine.at)),
            Err(Stop(why)) => return Err(bad(format!("in the pickle, at byte {start}: {why}"))),
        }
    }
}

/// Why a pickle cannot go on.
struct Stop(String);

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Stop(why.into())
    }
}

type Step<T> = std::result::Result<T, Stop>;

struct Machine<'h, 'a> {
    at: usize,
    heap: &'h mut Heap<'a>,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<u32>,
    memo: HashMap<u32, Value>,
}

impl Machine<'_, '_> {
    /// One opcode; the result at the last one.
    fn step(&mut self) -> Step<Option<Value>> {
        let [opcode] = self.fixed()?;
        let value = match opcode {
            b'.' => return self.pop().map(Some),
            // Protocol, frames: nothing to do.
            0x80 => return self.take(1).map(|_| None),
            0x95 => return self.take(8).map(|_| None),
            // Marks, and what removes.
            b'(' => {
                self.marks.push(self.stack.len() as u32);
                return Ok(None);
            }
            b'0' => return self.pop().map(|_| None),
            b'1' => return self.marked().map(|_| None),
            b'2' => self.top()?,
            // The memo.
            b'q' => return self.remember(|m| Ok(u32::from(m.fixed::<1>()?[0]))),
            b'r' => return self.remember(|m| Ok(u32::from_le_bytes(m.fixed()?))),
            0x94 => return self.remember(|m| Ok(m.memo.len() as u32)),
            b'h' => self.recall(|m| Ok(u32::from(m.fixed::<1>()?[0])))?,
            b'j' => self.recall(|m| Ok(u32::from_le_bytes(m.fixed()?)))?,
            // Plain values.
            b'N' | 0x88 | 0x89 => Value::Other,
            b'J' => Value::Int(i32::from_le_bytes(self.fixed()?).into()),
            b'K' => Value::Int(self.fixed::<1>()?[0].into()),
            b'M' => Value::Int(u16::from_le_bytes(self.fixed()?).into()),
            0x8a => {
                let length = self.fixed::<1>()?[0].into();
                self.long(length)?
            }
            0x8b => {
                let length = u32::from_le_bytes(self.fixed()?);
                self.long(length.into())?
            }
            b'G' => self.take(8).map(|_| Value::Other)?,
            b'X' | b'T' => {
                let length = u32::from_le_bytes(self.fixed()?);
                self.text(length.into())?
            }
            0x8c | b'U' => {
                let length = self.fixed::<1>()?[0].into();
                self.text(length)?
            }
            0x8d => {
                let length = u64::from_le_bytes(self.fixed()?);
                self.text(length)?
            }
            b'B' => {
                let length = u32::from_le_bytes(self.fixed()?);
                self.take(length.into()).map(|_| Value::Other)?
            }
            b'C' => {
                let length = self.fixed::<1>()?[0];
                self.take(length.into()).map(|_| Value::Other)?
            }
            0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.fixed()?);
                self.take(length).map(|_| Value::Other)?
            }
            // Containers.
            b')' => self.tuple(vec![]),
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(opcode - 0x84)).ok_or(EMPTY)?;
                self.above(from)?;
                let row = self.stack.split_off(from);
                self.tuple(row)
            }
            b't' => {
                let row = self.marked()?;
                self.tuple(row)
            }
            b']' => Value::List(put(&mut self.heap.rows, vec![])),
            b'l' => {
                let row = self.marked()?;
                Value::List(put(&mut self.heap.rows, row))
            }
            b'}' => Value::Dict(put(&mut self.heap.dicts, vec![])),
            b'd' => {
                let dict = Value::Dict(put(&mut self.heap.dicts, vec![]));
                let pairs = self.marked()?;
                self.insert(dict, &pairs)?;
                dict
            }
            0x8f => Value::Other,
            0x90 => return self.marked().map(|_| None),
            0x91 => self.marked().map(|_| Value::Other)?,
            b'a' => {
                let value = self.pop()?;
                return self.append(&[value]);
            }
            b'e' => {
                let row = self.marked()?;
                return self.append(&row);
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                let dict = self.top()?;
                return self.insert(dict, &[key, value]);
            }
            b'u' => {
                let pairs = self.marked()?;
                let dict = self.top()?;
                return self.insert(dict, &pairs);
            }
            // Python's names, and what would call them.
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                Value::Global(put(&mut self.heap.globals, (module, name)))
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => Value::Global(put(&mut self.heap.globals, (module, name))),
                _ => return Err("the name of a class is no text".into()),
            },
            b'R' | 0x81 => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                torch::call(self.heap, callable, arguments)
            }
            0x92 => {
                let (_keywords, arguments, callable) = (self.pop()?, self.pop()?, self.pop()?);
                torch::call(self.heap, callable, arguments)
            }
            // Attributes: tensors and dictionaries keep what they are.
            b'b' => return self.pop().and_then(|_| self.top()).map(|_| None),
            b'Q' => {
                let id = self.pop()?;
                torch::persistent(self.heap, id)
            }
            b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' | b'i' | b'o' | b'P' => {
                let text = "it is of protocol 0 or 1, which torch.save does not write; save it again with PyTorch";
                return Err(text.into());
            }
            0x82..=0x84 | 0x97 | 0x98 => {
                return Err("it refers to things outside the file, which torch.save does not write".into());
            }
            other => return Err(Stop(format!("{other:#04x} is no opcode"))),
        };
        self.stack.push(value);
        Ok(None)
    }

    fn take(&mut self, length: u64) -> Step<Span> {
        let left = self.heap.pickle.len().saturating_sub(self.at);
        let length = usize::try_from(length).ok().filter(|&n| n <= left);
        let Some(length) = length else { return Err(Stop(format!("truncated: {left} bytes are left"))) };
        // Whoever made the heap saw to it that the pickle has less than 2^32 bytes.
        let span = Span { at: self.at as u32, len: length as u32 };
        self.at += length;
        Ok(span)
    }

    fn fixed<const N: usize>(&mut self) -> Step<[u8; N]> {
        let span = self.take(N as u64)?;
        self.heap.bytes(span).try_into().map_err(|_| "truncated".into())
    }

    fn text(&mut self, length: u64) -> Step<Value> {
        let span = self.take(length)?;
        // Python 2's strings may be any bytes.
        Ok(std::str::from_utf8(self.heap.bytes(span)).map_or(Value::Other, |_| Value::Text(span)))
    }

    fn line(&mut self) -> Step<Span> {
        let rest = self.heap.pickle.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == b'\n').ok_or("a line does not end")?;
        let span = self.take(end as u64)?;
        self.take(1)?;
        Ok(span)
    }

    /// A signed number of `length` bytes. Larger ones than 64 bits have no use here.
    fn long(&mut self, length: u64) -> Step<Value> {
        let span = self.take(length)?;
        let bytes = self.heap.bytes(span);
        if bytes.len() > 8 {
            return Ok(Value::Other);
        }
        let fill = if bytes.last().is_some_and(|&top| top >= 0x80) { 0xff } else { 0 };
        let mut wide = [fill; 8];
        wide.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        Ok(Value::Int(i64::from_le_bytes(wide)))
    }

    /// No value below a mark may be taken until the mark is.
    fn above(&self, height: usize) -> Step<()> {
        match self.marks.last() {
            Some(&mark) if height < mark as usize => Err(EMPTY.into()),
            _ => Ok(()),
        }
    }

    fn pop(&mut self) -> Step<Value> {
        self.above(self.stack.len().saturating_sub(1))?;
        self.stack.pop().ok_or(EMPTY.into())
    }

    fn top(&self) -> Step<Value> {
        self.above(self.stack.len().saturating_sub(1))?;
        self.stack.last().copied().ok_or(EMPTY.into())
    }

    /// What was pushed since the last mark.
    fn marked(&mut self) -> Step<Vec<Value>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off((mark as usize).min(self.stack.len())))
    }

    fn tuple(&mut self, row: Vec<Value>) -> Value {
        Value::Tuple(put(&mut self.heap.rows, row))
    }

    fn remember(&mut self, number: impl FnOnce(&mut Self) -> Step<u32>) -> Step<Option<Value>> {
        let number = number(self)?;
        let value = self.top()?;
        self.memo.insert(number, value);
        Ok(None)
    }

    fn recall(&mut self, number: impl FnOnce(&mut Self) -> Step<u32>) -> Step<Value> {
        let number = number(self)?;
        self.memo.get(&number).copied().ok_or_else(|| Stop(format!("nothing was remembered as {number}")))
    }

    fn append(&mut self, row: &[Value]) -> Step<Option<Value>> {
        match self.top()? {
            Value::List(id) => {
                if let Some(list) = self.heap.rows.get_mut(id as usize) {
                    list.extend_from_slice(row);
                }
                Ok(None)
            }
            Value::Opaque(_) | Value::Other => Ok(None),
            other => Err(Stop(format!("{} has no elements to append to", self.heap.describe(other)))),
        }
    }

    fn insert(&mut self, dict: Value, pairs: &[Value]) -> Step<Option<Value>> {
        match dict {
            Value::Dict(id) => {
                let (pairs, []) = pairs.as_chunks::<2>() else { return Err("a key has no value".into()) };
                if let Some(dict) = self.heap.dicts.get_mut(id as usize) {
                    dict.extend(pairs.iter().map(|&[key, value]| (key, value)));
                }
                Ok(None)
            }
            Value::Opaque(_) | Value::Other => Ok(None),
            other => Err(Stop(format!("{} has no keys", self.heap.describe(other)))),
        }
    }
}

const EMPTY: &str = "the stack is empty";
