//! The allow-list: the few Python names that tensors are made of, and what calling them gives. Nothing is looked up or run;
//! a name that is not here makes an opaque value.

use super::heap::{Heap, Storage, Value, Window, put};
use crate::DType;

/// A type of elements: the class of its storages (empty where there is none), PyTorch's name, bytes, Tallow's dtype.
pub(super) struct Element {
    class: &'static str,
    pub name: &'static str,
    pub bytes: u8,
    pub dtype: Option<DType>,
}

const fn element(class: &'static str, name: &'static str, bytes: u8, dtype: Option<DType>) -> Element {
    Element { class, name, bytes, dtype }
}

#[rustfmt::skip]
pub(super) static ELEMENTS: [Element; 26] = [
    element("FloatStorage", "float32", 4, Some(DType::F32)),
    element("HalfStorage", "float16", 2, Some(DType::F16)),
    element("BFloat16Storage", "bfloat16", 2, Some(DType::BF16)),
    element("DoubleStorage", "float64", 8, Some(DType::F64)),
    element("LongStorage", "int64", 8, Some(DType::I64)),
    element("IntStorage", "int32", 4, Some(DType::I32)),
    element("ShortStorage", "int16", 2, Some(DType::I16)),
    element("CharStorage", "int8", 1, Some(DType::I8)),
    element("ByteStorage", "uint8", 1, Some(DType::U8)),
    element("BoolStorage", "bool", 1, Some(DType::U8)),
    // Bytes; a tensor of it says what they are.
    element("UntypedStorage", "", 1, None),
    element("", "uint16", 2, Some(DType::U16)),
    element("", "uint32", 4, Some(DType::U32)),
    element("", "uint64", 8, Some(DType::U64)),
    element("", "float8_e4m3fn", 1, Some(DType::F8E4M3)),
    element("", "float8_e5m2", 1, Some(DType::F8E5M2)),
    element("", "float8_e4m3fnuz", 1, None),
    element("", "float8_e5m2fnuz", 1, None),
    element("", "float8_e8m0fnu", 1, None),
    element("", "float4_e2m1fn_x2", 1, None),
    element("", "complex32", 4, None),
    element("ComplexFloatStorage", "complex64", 8, None),
    element("ComplexDoubleStorage", "complex128", 16, None),
    element("QInt8Storage", "qint8", 1, None),
    element("QUInt8Storage", "quint8", 1, None),
    element("QInt32Storage", "qint32", 4, None),
];

/// What a name of the allow-list is.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    /// `(storage, offset, size, stride, ...)`; in version 3, the dtype comes at 6.
    RebuildTensor,
    RebuildTensorV3,
    /// `(tensor, ...)`.
    Wrapped,
    /// `(function, class, arguments, state)`.
    RebuildFromType,
    OrderedDict,
    Size,
    Storage(u8),
    Element(u8),
}

fn known(heap: &Heap<'_>, global: u32) -> Option<Known> {
    let &(module, name) = heap.globals.get(global as usize)?;
    let (module, name) = (heap.bytes(module), heap.bytes(name));
    let found = |test: &dyn Fn(&Element) -> bool| ELEMENTS.iter().position(test).map(|at| at as u8);
    // As bytes: a pickle may name a megabyte a million times.
    match (module, name) {
        (b"torch._utils", b"_rebuild_tensor" | b"_rebuild_tensor_v2") => Some(Known::RebuildTensor),
        (b"torch._utils", b"_rebuild_tensor_v3") => Some(Known::RebuildTensorV3),
        (b"torch._utils", b"_rebuild_parameter" | b"_rebuild_parameter_with_state") => Some(Known::Wrapped),
        (b"torch.nn.parameter" | b"torch.nn", b"Parameter" | b"Buffer") => Some(Known::Wrapped),
        (b"torch._tensor", b"_rebuild_from_type_v2") => Some(Known::RebuildFromType),
        (b"collections", b"OrderedDict") => Some(Known::OrderedDict),
        (b"torch", b"Size") => Some(Known::Size),
        (b"torch" | b"torch.cuda" | b"torch.storage", class) if class.ends_with(b"Storage") => {
            found(&|e| e.class.as_bytes() == class).map(Known::Storage)
        }
        (b"torch", dtype) => found(&|e| e.name.as_bytes() == dtype).map(Known::Element),
        _ => None,
    }
}

/// `callable(*arguments)`: what the allow-list says, else an opaque value.
pub(super) fn call(heap: &mut Heap<'_>, callable: Value, arguments: Value) -> Value {
    let global = match callable {
        Value::Global(global) => global,
        Value::Opaque(global) => return Value::Opaque(global),
        _ => return Value::Other,
    };
    built(heap, global, arguments).unwrap_or(Value::Opaque(global))
}

fn built(heap: &mut Heap<'_>, global: u32, arguments: Value) -> Option<Value> {
    let known = known(heap, global)?;
    let at = |heap: &Heap<'_>, n: usize| heap.row(arguments).and_then(|(_, row)| row.get(n).copied());
    match known {
        Known::OrderedDict => {
            let mut pairs = Vec::new();
            if let Some(list) = at(heap, 0) {
                let list = heap.row(list)?.1;
                // A pickle may give one list a million times.
                let copied = heap.copied + list.len();
                for &pair in list.iter().take_while(|_| copied <= heap.pickle.len()) {
                    let &[key, value] = heap.row(pair)?.1 else { return None };
                    pairs.push((key, value));
                }
                heap.copied = copied;
            }
            Some(Value::Dict(put(&mut heap.dicts, pairs)))
        }
        Known::Size => at(heap, 0).filter(|&sizes| heap.row(sizes).is_some()),
        Known::Wrapped => at(heap, 0).filter(|data| matches!(data, Value::Tensor(_) | Value::Opaque(_))),
        Known::RebuildFromType => {
            let Value::Global(function) = at(heap, 0)? else { return None };
            // Not this one again: a pickle could call it within itself without end.
            let inner = self::known(heap, function).filter(|&inner| inner != Known::RebuildFromType)?;
            let arguments = at(heap, 2)?;
            matches!(inner, Known::RebuildTensor | Known::RebuildTensorV3 | Known::Wrapped)
                .then(|| built(heap, function, arguments))?
        }
        Known::RebuildTensor | Known::RebuildTensorV3 => {
            let Value::Storage(storage) = at(heap, 0)? else { return None };
            let Value::Int(offset) = at(heap, 1)? else { return None };
            let [sizes, strides] = [2, 3].map(|n| at(heap, n).and_then(|row| heap.row(row)).map(|(id, _)| id));
            let element = match (known, at(heap, 6)) {
                (Known::RebuildTensor, _) => heap.storages.get(storage as usize)?.element,
                (_, Some(Value::Global(dtype))) => match self::known(heap, dtype)? {
                    Known::Element(element) => element,
                    _ => return None,
                },
                _ => return None,
            };
            let window = Window { storage, element, offset, sizes: sizes?, strides: strides? };
            Some(Value::Tensor(put(&mut heap.tensors, window)))
        }
        Known::Storage(_) | Known::Element(_) => None,
    }
}

/// What a persistent id names: `("storage", class, key, place, elements[, (key, first, elements)])`.
pub(super) fn persistent(heap: &mut Heap<'_>, id: Value) -> Value {
    storage(heap, id).map_or(Value::Other, |storage| Value::Storage(put(&mut heap.storages, storage)))
}

fn storage(heap: &Heap<'_>, id: Value) -> Option<Storage> {
    let [Value::Text(what), Value::Global(class), Value::Text(key), _, Value::Int(whole), rest @ ..] = heap.row(id)?.1
    else {
        return None;
    };
    let Known::Storage(element) = known(heap, *class)? else { return None };
    if heap.bytes(*what) != b"storage" {
        return None;
    }
    let whole = u64::try_from(*whole).ok()?;
    let (first, elements) = match rest.first().and_then(|part| heap.row(*part)) {
        None => (0, whole),
        Some((_, [_, Value::Int(first), Value::Int(elements)])) => {
            let (first, elements) = (u64::try_from(*first).ok()?, u64::try_from(*elements).ok()?);
            first.checked_add(elements).filter(|&end| end <= whole)?;
            (first, elements)
        }
        Some(_) => return None,
    };
    Some(Storage { key: *key, element, first, elements, whole })
}
