//! Matrix products and indexing.

use crate::check::{Row, check};
use std::sync::Arc;
use tallow::{Activations, DType, Device, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

#[test]
fn products() {
    let f = |name, shapes: &[&[usize]], f: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        Row::new(name, shapes, -1.0..1.0, move |x| f(&x[0], &x[1]))
    };
    check(&[
        f("matmul", &[&[3, 4], &[4, 2]], Tensor::matmul),
        f("matmul of batches", &[&[2, 3, 2], &[2, 2, 4]], Tensor::matmul),
        f("one matrix for all", &[&[2, 3, 2], &[2, 4]], Tensor::broadcast_matmul),
        f("one matrix of batch 1", &[&[3, 2, 2], &[1, 2, 3]], Tensor::broadcast_matmul),
        f("left stretched", &[&[3, 2], &[2, 2, 2]], Tensor::broadcast_matmul),
        f("both stretched", &[&[2, 1, 2, 3], &[2, 3, 2]], Tensor::broadcast_matmul),
        f("matmul over nothing", &[&[2, 0], &[0, 3]], Tensor::matmul).first_only(),
        f("linear", &[&[2, 2, 3], &[4, 3]], |x, w| x.linear(w, Activations::F32)),
        f("linear of a vector", &[&[3], &[4, 3]], |x, w| x.linear(w, Activations::F32)),
    ]);
}

#[test]
fn indexing() {
    check(&[
        Row::new("index_select rows", &[&[4, 3]], -1.0..1.0, |x| {
            x[0].index_select(&Tensor::new([2u32, 0, 2, 3, 2], CPU)?.to_device(x[0].device())?, 0)?.sqr()
        }),
        Row::new("index_select columns", &[&[2, 4, 2]], -1.0..1.0, |x| {
            x[0].index_select(&Tensor::new([3u32, 3, 1], CPU)?.to_device(x[0].device())?, 1)?.sqr()
        }),
        Row::new("index_select of nothing", &[&[3, 2]], -1.0..1.0, |x| {
            x[0].index_select(&Tensor::zeros(0, DType::U32, CPU)?.to_device(x[0].device())?, 0)
        })
        .first_only(),
        Row::new("embedding", &[&[5, 2]], -1.0..1.0, |x| {
            x[0].embedding(&Tensor::new([[4u32, 1], [1, 0]], CPU)?.to_device(x[0].device())?)?.sqr()
        }),
    ]);
}

#[test]
fn many_rows_by_narrow_ids() -> Result<()> {
    // 8-bit ids into more rows than they can name: row 256 + i is not row i.
    let table = Var::zeros((300, 1), DType::F32, CPU)?;
    let grads = table.embedding(&Tensor::new([7u8, 7, 255], CPU)?)?.backward()?;
    let of_table = grads.get(&table).expect("a gradient").flatten_all()?.to_vec1::<f32>()?;
    let hit: Vec<(usize, f32)> = of_table.into_iter().enumerate().filter(|(_, g)| *g != 0.0).collect();
    assert_eq!(hit, [(7, 2.0), (255, 1.0)]);
    Ok(())
}

#[test]
fn a_packed_weight_passes_the_gradient_on() -> Result<()> {
    // Q8_0: a half-precision scale and 32 signed bytes a block.
    let (rows, cols) = (3, 32);
    let mut bytes = Vec::new();
    for row in 0..rows {
        bytes.extend(half::f16::from_f32(0.5).to_le_bytes());
        bytes.extend((0..cols).map(|c| ((c * 7 + row * 3) % 11) as u8));
    }
    let length = bytes.len();
    let node = CPU.engine().upload_packed(DType::Q8_0, rows, cols, Arc::new(bytes), 0..length)?;
    let packed = Tensor::from_node(node, CPU);
    let x = Var::rand(-1f32, 1., (2, cols), CPU)?;
    let plain = packed.dequantize()?;
    let weights = Tensor::new([[1f32, -2., 0.5], [0.25, 3., 1.]], CPU)?;
    let gradient = |w: &Tensor| -> Result<Vec<Vec<f32>>> {
        let grads = (x.linear(w, Activations::F32)? * &weights)?.backward()?;
        grads.get(&x).expect("a gradient").to_vec2()
    };
    assert_eq!(gradient(&packed)?, gradient(&plain)?);
    assert!(gradient(&packed)?.iter().flatten().any(|g| *g != 0.0));
    // A row of it by index is a constant.
    assert!(!packed.index_select(&Tensor::new([1u32], CPU)?, 0)?.is_tracked());
    Ok(())
}

#[test]
fn integers_are_not_tracked() -> Result<()> {
    let x = Var::new([[1f32, 2.], [3., 4.]], CPU)?;
    let whole = x.to_dtype(DType::I32)?;
    assert!(!whole.is_tracked() && !whole.matmul(&whole)?.is_tracked() && !x.argmax(0)?.is_tracked());
    assert!(!x.gt(&x)?.is_tracked());
    let counter = Var::new([1u32], CPU)?;
    assert!(!counter.to_dtype(DType::F32)?.is_tracked());
    Ok(())
}
