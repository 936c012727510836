//! The kernels of `kernel/index.rs`, one loop each.

use super::{
    run::{At, Words, element, indices, put, weight},
    value::{V, binary, cast},
};
use crate::{
    BinaryOp, DType,
    kernel::{GatherKernel, PickKernel, ScanKernel, ScanOp, ScatterKernel, ScatterOp, SortKernel},
};
use std::cmp::Ordering;

pub(super) fn gather(g: &GatherKernel, mut words: Words<'_>, inputs: &[Vec<u8>], out: &mut [u8]) -> Result<(), String> {
    let shape = words.many(4);
    let [outer, ids, rows, inner] = shape else { return Ok(()) };
    let source = At(words.one(), words.many(2));
    let which = At(words.one(), words.many(1));
    let mut fault = Ok(());
    let mut at = 0;
    for index in indices(&[*outer, *ids]) {
        let id = element(&inputs[1], g.ids, which.index(&index[1..])).i();
        let inside = check(id, g.ids, *rows, &mut fault);
        for d in 0..*inner {
            let value = match inside {
                true => weight(&inputs[0], g.source, source.index(&[index[0], id as i64]) + d as usize),
                false => V::F(0.0),
            };
            put(out, g.output, at, cast(value, g.output));
            at += 1;
        }
    }
    fault
}

/// Sizes [outer, n, inner].
fn three(words: &mut Words<'_>) -> [i64; 3] {
    [words.one(), words.one(), words.one()]
}

fn check(id: i128, dtype: DType, rows: i64, fault: &mut Result<(), String>) -> bool {
    let inside = (0..i128::from(rows)).contains(&id);
    if !inside && !dtype.is_hole(id) && fault.is_ok() {
        *fault = Err(format!("index {id} is outside 0..{rows}"));
    }
    inside
}

pub(super) fn pick(k: &PickKernel, mut words: Words<'_>, inputs: &[Vec<u8>], out: &mut [u8]) -> Result<(), String> {
    let dims = three(&mut words);
    let rows = words.one();
    let [source, ids] = [(); 2].map(|()| At(words.one(), words.many(3)));
    let mut fault = Ok(());
    for (at, index) in indices(&dims).into_iter().enumerate() {
        let id = element(&inputs[1], k.ids, ids.index(&index)).i();
        let value = match check(id, k.ids, rows, &mut fault) {
            true => element(&inputs[0], k.dtype, source.index(&[index[0], id as i64, index[2]])),
            false => cast(V::I(0), k.dtype),
        };
        put(out, k.dtype, at, value);
    }
    fault
}

pub(super) fn scatter(
    k: &ScatterKernel,
    mut words: Words<'_>,
    inputs: &[Vec<u8>],
    out: &mut [u8],
) -> Result<(), String> {
    let dims = three(&mut words);
    let rows = words.one();
    let [ids, source] = [(); 2].map(|()| At(words.one(), words.many(3)));
    let mut fault = Ok(());
    for index in indices(&dims) {
        let id = element(&inputs[0], k.ids, ids.index(&index)).i();
        if !check(id, k.ids, rows, &mut fault) {
            continue;
        }
        let at = ((index[0] * rows + id as i64) * dims[2] + index[2]) as usize;
        let (old, new) = (element(out, k.dtype, at), element(&inputs[1], k.dtype, source.index(&index)));
        let value = match k.op {
            ScatterOp::Set => new,
            ScatterOp::Add => binary(BinaryOp::Add, old, new, k.dtype),
            ScatterOp::Max => binary(BinaryOp::Maximum, old, new, k.dtype),
            ScatterOp::Min => binary(BinaryOp::Minimum, old, new, k.dtype),
        };
        put(out, k.dtype, at, value);
    }
    fault
}

/// NaN last.
fn order(a: V, b: V) -> Ordering {
    match (a, b) {
        (V::I(x), V::I(y)) => x.cmp(&y),
        _ => match (a.f().is_nan(), b.f().is_nan()) {
            (false, false) => a.f().partial_cmp(&b.f()).unwrap_or(Ordering::Equal),
            (x, y) => x.cmp(&y),
        },
    }
}

pub(super) fn sort(k: &SortKernel, mut words: Words<'_>, inputs: &[Vec<u8>], out: &mut [u8]) {
    let [outer, n, inner] = three(&mut words);
    let source = At(words.one(), words.many(3));
    for index in indices(&[outer, inner]) {
        let (o, j) = (index[0], index[1]);
        let value = |i: i64| element(&inputs[0], k.dtype, source.index(&[o, i, j]));
        let mut positions: Vec<i64> = (0..n).collect();
        positions.sort_by(|&a, &b| match k.descending {
            true => order(value(b), value(a)),
            false => order(value(a), value(b)),
        });
        for (i, at) in positions.into_iter().enumerate() {
            put(out, DType::U32, ((o * n + i as i64) * inner + j) as usize, V::I(at.into()));
        }
    }
}

pub(super) fn scan(k: &ScanKernel, mut words: Words<'_>, inputs: &[Vec<u8>], out: &mut [u8]) {
    let [outer, n, inner] = three(&mut words);
    let source = At(words.one(), words.many(3));
    let op = match k.op {
        ScanOp::Sum => BinaryOp::Add,
        ScanOp::Prod => BinaryOp::Mul,
        ScanOp::Max => BinaryOp::Maximum,
        ScanOp::Min => BinaryOp::Minimum,
    };
    for index in indices(&[outer, inner]) {
        let (o, j) = (index[0], index[1]);
        let mut running: Option<V> = None;
        for i in 0..n {
            let value = element(&inputs[0], k.dtype, source.index(&[o, i, j]));
            let now = running.map_or(value, |before| binary(op, before, value, k.dtype));
            put(out, k.dtype, ((o * n + i) * inner + j) as usize, now);
            running = Some(now);
        }
    }
}
