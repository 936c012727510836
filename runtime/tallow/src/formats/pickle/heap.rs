//! What a pickle builds: small values, and the heap of what they refer to. Values are numbers of things, not owners of them, so
//! that a pickle may tie itself into knots (a list in itself, a million tuples in one another) without a cost.

/// Where text lies in the pickle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub at: u32,
    pub len: u32,
}

/// A value on the machine's stack or in a container.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// Something that no tensor is made of: None, a bool, a float, bytes, a set.
    Other,
    Int(i64),
    Text(Span),
    List(u32),
    Tuple(u32),
    Dict(u32),
    Global(u32),
    Storage(u32),
    Tensor(u32),
    /// What a call of this global would give, if it were made: only the allow-list of `torch.rs` is.
    Opaque(u32),
}

/// A storage: a run of elements, or the part of one that starts at `first`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Storage {
    /// Its name in the file.
    pub key: Span,
    /// The number of its class in `torch.rs`.
    pub element: u8,
    /// Its first element in what the file holds under the name.
    pub first: u64,
    pub elements: u64,
    /// Elements that the file holds under the name.
    pub whole: u64,
}

/// A tensor as its storage's window. Nothing of it is checked yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub storage: u32,
    /// The number of its dtype in `torch.rs`.
    pub element: u8,
    pub offset: i64,
    /// Tuples (or lists) of sizes and of strides.
    pub sizes: u32,
    pub strides: u32,
}

/// Everything that values refer to.
#[derive(Debug, Default)]
pub(super) struct Heap<'a> {
    pub pickle: &'a [u8],
    /// Lists and tuples.
    pub rows: Vec<Vec<Value>>,
    pub dicts: Vec<Vec<(Value, Value)>>,
    /// Modules and names.
    pub globals: Vec<(Span, Span)>,
    pub storages: Vec<Storage>,
    pub tensors: Vec<Window>,
    /// Pairs that were copied into dictionaries.
    pub copied: usize,
}

/// Appends and returns the number.
pub(super) fn put<T>(to: &mut Vec<T>, what: T) -> u32 {
    // A pickle has at most 2^32 bytes, and each makes one thing at most.
    let number = to.len() as u32;
    to.push(what);
    number
}

impl<'a> Heap<'a> {
    pub fn bytes(&self, span: Span) -> &'a [u8] {
        let (at, len) = (span.at as usize, span.len as usize);
        self.pickle.get(at..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }

    pub fn text(&self, span: Span) -> &'a str {
        std::str::from_utf8(self.bytes(span)).unwrap_or("?")
    }

    /// The elements of a list or tuple.
    pub fn row(&self, value: Value) -> Option<(u32, &[Value])> {
        match value {
            Value::List(id) | Value::Tuple(id) => Some((id, self.rows.get(id as usize)?)),
            _ => None,
        }
    }

    pub fn dict(&self, id: u32) -> &[(Value, Value)] {
        self.dicts.get(id as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// A global's name with its module's in front.
    pub fn global(&self, id: u32) -> String {
        match self.globals.get(id as usize) {
            Some(&(module, name)) => format!("{}.{}", self.text(module), self.text(name)),
            None => "?".into(),
        }
    }

    /// What a value is, in words.
    pub fn describe(&self, value: Value) -> String {
        match value {
            Value::Other => "a value that is no tensor".into(),
            Value::Int(_) => "a number".into(),
            Value::Text(_) => "a string".into(),
            Value::List(_) => "a list".into(),
            Value::Tuple(_) => "a tuple".into(),
            Value::Dict(_) => "a dict".into(),
            Value::Storage(_) => "a storage".into(),
            Value::Tensor(_) => "a tensor".into(),
            Value::Global(id) => format!("the Python name {}", crate::formats::quoted(&self.global(id))),
            Value::Opaque(id) => {
                let name = crate::formats::quoted(&self.global(id));
                format!("an object of {name}, which Tallow does not build")
            }
        }
    }
}
