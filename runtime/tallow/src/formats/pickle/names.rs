//! From the object that a pickle built to named, checked tensors: dictionaries, lists and tuples are walked, names joined by
//! dots, and each tensor's window is compared with its storage.

use super::{
    TensorInfo, bad,
    container::Data,
    heap::{Heap, Value, Window},
    torch::ELEMENTS,
};
use crate::{Result, Shape, View, formats::quoted};
use tallow_graph::MAX_RANK;

/// Containers inside containers.
const MAX_DEPTH: usize = 32;
/// How many keys an error lists.
const SHOWN: usize = 8;

/// A tensor whose elements all lie in its storage, or why there is none.
pub(super) enum Found {
    Tensor(TensorInfo),
    Refused(String),
}

/// The part of the object to walk: all of it, or what its dictionary has under a key.
pub(super) fn select(heap: &Heap<'_>, root: Value, key: Option<&str>) -> Result<Value> {
    let Some(key) = key else { return Ok(root) };
    let Value::Dict(id) = root else {
        return Err(bad(format!("there is no key {}: the file holds {}", quoted(key), heap.describe(root))));
    };
    let pairs = heap.dict(id);
    let is = |at: &Value| matches!(at, Value::Text(text) if heap.bytes(*text) == key.as_bytes());
    if let Some((_, value)) = pairs.iter().rev().find(|(at, _)| is(at)) {
        return Ok(*value);
    }
    let names = pairs.iter().take(SHOWN).filter_map(|(at, _)| label(heap, *at)).map(|name| quoted(&name));
    let more = if pairs.len() > SHOWN { ", ..." } else { "" };
    let names = names.collect::<Vec<_>>().join(", ");
    Err(bad(format!("there is no key {}; there are {names}{more}", quoted(key))))
}

/// A key as a part of a name.
fn label(heap: &Heap<'_>, key: Value) -> Option<String> {
    match key {
        Value::Text(text) => Some(heap.text(text).into()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Every tensor below `root` with its name, in the file's order; and every object that was not built.
pub(super) fn walk(heap: &Heap<'_>, root: Value, data: &Data) -> Result<Vec<(String, Found)>> {
    if let Value::Opaque(_) | Value::Storage(_) = root {
        let text = format!("the file holds {}; save a model's state_dict() with torch.save", heap.describe(root));
        return Err(bad(text));
    }
    // Containers may be shared, and a small pickle may so describe a large tree. No file that torch.save made of different
    // tensors has more parts, or longer names, than its pickle has bytes.
    let mut walk = Walk { heap, data, parts: heap.pickle.len(), letters: heap.pickle.len(), found: vec![] };
    walk.visit(root, String::new(), 0)?;
    Ok(walk.found)
}

struct Walk<'h, 'a> {
    heap: &'h Heap<'a>,
    data: &'h Data,
    /// What is left to visit, and to write of names.
    parts: usize,
    letters: usize,
    found: Vec<(String, Found)>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, value: Value, name: String, depth: usize) -> Result<()> {
        self.parts = self.parts.checked_sub(1).ok_or_else(Self::entangled)?;
        let heap = self.heap;
        match value {
            Value::Tensor(id) => {
                let Some(window) = heap.tensors.get(id as usize) else { return Ok(()) };
                let inside = |error| crate::formats::inside(format_args!("tensor {}", quoted(&name)), error);
                let found = self.tensor(&name, window).map_err(inside)?;
                self.found.push((name, found));
                Ok(())
            }
            Value::Opaque(_) => {
                self.found.push((name, Found::Refused(heap.describe(value))));
                Ok(())
            }
            Value::Dict(_) | Value::List(_) | Value::Tuple(_) if depth == MAX_DEPTH => {
                Err(bad(format!("{}: dictionaries and lists are nested more than {MAX_DEPTH} deep", quoted(&name))))
            }
            Value::Dict(id) => {
                for &(key, value) in heap.dict(id) {
                    if let Some(label) = label(heap, key) {
                        self.below(&name, &label, value, depth)?;
                    }
                }
                Ok(())
            }
            Value::List(_) | Value::Tuple(_) => {
                for (number, &value) in heap.row(value).map(|(_, row)| row).unwrap_or_default().iter().enumerate() {
                    self.below(&name, &number.to_string(), value, depth)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Visits a part of what is called `name`.
    fn below(&mut self, name: &str, label: &str, value: Value, depth: usize) -> Result<()> {
        let has_name =
            matches!(value, Value::Tensor(_) | Value::Opaque(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_));
        if !has_name {
            self.parts = self.parts.checked_sub(1).ok_or_else(Self::entangled)?;
            return Ok(());
        }
        let length = name.len() + label.len() + 1;
        self.letters = self.letters.checked_sub(length).ok_or_else(Self::entangled)?;
        let dot = if name.is_empty() { "" } else { "." };
        self.visit(value, format!("{name}{dot}{label}"), depth + 1)
    }

    fn entangled() -> crate::Error {
        bad("the object has more parts than its pickle has bytes: its dictionaries or lists hold one another")
    }

    fn tensor(&self, name: &str, window: &Window) -> Result<Found> {
        let heap = self.heap;
        let Some(storage) = heap.storages.get(window.storage as usize) else { return Err(bad("it has no storage")) };
        let (Some(element), Some(class)) =
            (ELEMENTS.get(usize::from(window.element)), ELEMENTS.get(usize::from(storage.element)))
        else {
            return Err(bad("it has no dtype"));
        };
        let Some(dtype) = element.dtype else {
            let name = if element.name.is_empty() { "an untyped storage" } else { element.name };
            let hint = if name.starts_with("complex") { "; save torch.view_as_real(x) instead" } else { "" };
            return Ok(Found::Refused(format!("its elements are {name}, for which Tallow has no dtype{hint}")));
        };
        let path = self.data.path(heap.text(storage.key));
        self.data.check(&path, storage, class.bytes)?;
        let [sizes, strides] = [window.sizes, window.strides].map(|id| heap.rows.get(id as usize));
        let (sizes, strides) = (numbers(sizes)?, numbers(strides)?);
        if sizes.len() > MAX_RANK || sizes.len() != strides.len() {
            let (axes, steps) = (sizes.len(), strides.len());
            return Err(bad(format!("it has {axes} axes and {steps} strides; {MAX_RANK} axes are the most")));
        }
        // All in bytes: a tensor may see an untyped storage's bytes as elements.
        let size = i128::from(element.bytes);
        let (from, room) = (i128::from(window.offset) * size, i128::from(storage.elements) * i128::from(class.bytes));
        let steps = sizes.iter().zip(&strides).map(|(&d, &s)| d.saturating_sub(1) as i128 * s as i128);
        let elements = if sizes.contains(&0) { 0 } else { steps.fold(1, i128::saturating_add) };
        let end = elements.saturating_mul(size).saturating_add(from);
        if from < 0 || end > room {
            let offset = window.offset;
            let text = format!(
                "sizes {sizes:?}, strides {strides:?} and offset {offset} reach to byte {end} of its storage, "
            );
            return Err(bad(format!("{text}which has {room}")));
        }
        let first = u128::from(storage.first) * u128::from(class.bytes);
        let offset = (from as u128 + first).checked_div(size as u128).and_then(|n| usize::try_from(n).ok());
        // Empty axes count as one, so that every part of the shape can be counted too.
        let bytes = sizes.iter().try_fold(size as usize, |n, &d| n.checked_mul(d.max(1)));
        let elements = usize::try_from(room / size).ok();
        match (offset, bytes.filter(|&n| isize::try_from(n).is_ok()), elements) {
            (Some(offset), Some(_), Some(elements)) => {
                let strides = strides.iter().map(|&s| s as isize).collect();
                let layout = View { offset, shape: Shape::new(&sizes), strides };
                Ok(Found::Tensor(TensorInfo { name: name.into(), dtype, layout, path, storage_size: elements }))
            }
            _ => Err(bad(format!("sizes {sizes:?} are larger than memory"))),
        }
    }
}

/// Sizes or strides.
fn numbers(row: Option<&Vec<Value>>) -> Result<Vec<usize>> {
    let number = |value: &Value| match value {
        Value::Int(n) => usize::try_from(*n).ok().filter(|&n| isize::try_from(n).is_ok()),
        _ => None,
    };
    let row = row.map(Vec::as_slice).unwrap_or_default();
    // More than MAX_RANK are refused: no need to copy a million.
    let numbers = row.iter().take(MAX_RANK + 1).map(number).collect::<Option<Vec<_>>>();
    numbers.ok_or_else(|| bad(format!("a size or stride is no whole number up to {}", isize::MAX)))
}
