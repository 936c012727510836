//! Who sees a write: clones and views of a tensor do, results of operations do not, even where an operation has nothing to
//! do. One table, of every operation that could share by an early return; tracked and untracked.

use std::collections::HashSet;
use tallow::{D, DType, Device, IndexOp, Result, Tensor, Var, fft, linalg};

const CPU: &Device = &Device::Cpu;

type Operation = fn(&Tensor) -> Result<Tensor>;

/// Of a value [1, 1, 2, 3] of F32: these show later writes.
const VIEWS: &[(&str, Operation)] = &[
    ("clone", |x| Ok(x.clone())),
    ("detach", |x| Ok(x.detach())),
    ("contiguous", |x| x.contiguous()),
    ("to_dtype, the same", |x| x.to_dtype(DType::F32)),
    ("to_device, the same", |x| x.to_device(CPU)),
    ("reshape, the same", |x| x.reshape((1, 1, 2, 3))),
    ("reshape", |x| x.reshape((3, 2))),
    ("broadcast_as, the same", |x| x.broadcast_as((1, 1, 2, 3))),
    ("broadcast_as", |x| x.broadcast_as((4, 1, 2, 3))),
    ("expand", |x| x.expand((2, 1, 2, 3))),
    ("broadcast_left", |x| x.broadcast_left(2)),
    ("flatten", |x| x.flatten(1, 2)),
    ("flatten of nothing", |x| x.flatten(2, 1)),
    ("flatten_all", |x| x.flatten_all()),
    ("flatten_from", |x| x.flatten_from(2)),
    ("flatten_to", |x| x.flatten_to(1)),
    ("squeeze", |x| x.squeeze(0)),
    ("squeeze of another size", |x| x.squeeze(3)),
    ("unsqueeze", |x| x.unsqueeze(D::Minus1)),
    ("transpose", |x| x.transpose(2, 3)),
    ("transpose with itself", |x| x.transpose(2, 2)),
    ("t", |x| x.t()),
    ("permute", |x| x.permute((3, 2, 1, 0))),
    ("permute, the same", |x| x.permute((0, 1, 2, 3))),
    ("movedim", |x| x.movedim(0, 3)),
    ("narrow", |x| x.narrow(3, 1, 2)),
    ("narrow, all", |x| x.narrow(3, 0, 3)),
    ("get", |x| x.get(0)),
    ("get_on_dim", |x| x.get_on_dim(3, 1)),
    ("i, an index", |x| x.i((0, 0, 1))),
    ("i, a range", |x| x.i((.., .., .., 1..))),
    ("chunk", |x| Ok(x.chunk(3, 3)?.remove(1))),
    ("chunk of one", |x| Ok(x.chunk(1, 3)?.remove(0))),
    ("split", |x| Ok(x.split(&[1, 2], 3)?.remove(1))),
    ("flip", |x| x.flip(3)),
    ("flip of nothing", |x| x.flip(Vec::<usize>::new())),
    ("unfold", |x| x.unfold(3, 2, 1)),
    ("diagonal", |x| x.diagonal(0, 2, 3)),
    ("meshgrid", |x| Ok(Tensor::meshgrid(&[x.flatten_all()?], false)?.remove(0))),
    ("real", |x| fft::real(&x.narrow(3, 0, 2)?)),
    ("imag", |x| fft::imag(&x.narrow(3, 0, 2)?)),
];

/// Of the same value: these do not, and can be written.
const OPERATIONS: &[(&str, Operation)] = &[
    ("copy", |x| x.copy()),
    ("force_contiguous", |x| x.force_contiguous()),
    ("contiguous of a view", |x| x.t()?.contiguous()),
    ("reshape that copies", |x| x.t()?.reshape(6)),
    ("to_dtype", |x| x.to_dtype(DType::F64)),
    ("cat of one", |x| Tensor::cat(&[x], 2)),
    ("cat of a part", |x| Tensor::cat(&[x.narrow(3, 1, 2)?], 2)),
    ("cat of a turned one", |x| Tensor::cat(&[x.t()?], 2)),
    ("cat with nothing", |x| Tensor::cat(&[x.clone(), x.narrow(2, 0, 0)?], 2)),
    ("stack of one", |x| Tensor::stack(&[x], 0)),
    ("repeat by 1", |x| x.repeat(1)),
    ("repeat by 1 and new axes", |x| x.repeat((1, 1, 1, 1, 1))),
    ("repeat an axis of 1", |x| x.repeat((2, 3))),
    ("repeat", |x| x.repeat((1, 1, 1, 2))),
    ("tile", |x| x.tile(1)),
    ("roll by 0", |x| x.roll(0, 3)),
    ("roll by the size", |x| x.roll(3, 3)),
    ("pad_with_zeros by 0", |x| x.pad_with_zeros(3, 0, 0)),
    ("pad_with_value by 0", |x| x.pad_with_value(3, 0, 0, 1.)),
    ("pad_with_same by 0", |x| x.pad_with_same(3, 0, 0)),
    ("pad_with_reflection by 0", |x| x.pad_with_reflection(3, 0, 0)),
    ("maximum", |x| x.maximum(f64::NEG_INFINITY)),
    ("clamp", |x| x.clamp(f64::NEG_INFINITY, f64::INFINITY)),
    ("add 0", |x| x + 0.),
    ("affine 1, 0", |x| x.affine(1., 0.)),
    ("powf 1", |x| x.powf(1.)),
    ("prod of single elements", |x| x.prod(0)),
    ("prod of no axes", |x| x.prod(Vec::<usize>::new())),
    ("sum of single elements", |x| x.sum(0)),
    ("sum_keepdim of single elements", |x| x.sum_keepdim((0, 1))),
    ("sum of no axes", |x| x.sum(Vec::<usize>::new())),
    ("mean of single elements", |x| x.mean(0)),
    ("max of single elements", |x| x.max(0)),
    ("cumsum of single elements", |x| x.cumsum(0)),
    ("cumprod of single elements", |x| x.cumprod(0)),
    ("sort of single elements", |x| Ok(x.sort(0, false)?.0)),
    ("topk of single elements", |x| Ok(x.topk(1, 0, true)?.0)),
    ("median of single elements", |x| x.median(0)),
    ("tril, all", |x| x.tril(9)),
    ("triu, all", |x| x.triu(-9)),
    ("diag", |x| x.squeeze(0)?.squeeze(0)?.diag(0)),
    ("einsum, the same", |x| Tensor::einsum("abcd->abcd", &[x])),
    ("einsum, turned", |x| Tensor::einsum("...ij->...ji", &[x])),
    ("einsum, a diagonal", |x| Tensor::einsum("iijk->ijk", &[x])),
    ("index_select, all", |x| x.index_select(&Tensor::new([0u32, 1, 2], CPU)?, 3)),
    ("i, positions", |x| x.i(([0u32], ..))),
    ("slice_assign of nothing", |x| x.slice_assign(&[..0], &x.narrow(0, 0, 0)?)),
    ("slice_scatter", |x| x.slice_scatter(&x.zeros_like()?.narrow(3, 0, 1)?, 3, 0)),
    ("where_cond", |x| x.ge(f64::NEG_INFINITY)?.where_cond(x, x)),
    ("interpolate2d, the same", |x| x.interpolate2d(2, 3)),
    ("interpolate2d", |x| x.interpolate2d(2, 6)),
    ("upsample_bilinear2d, the same", |x| x.upsample_bilinear2d(2, 3, true)),
    ("interpolate1d of one element", |x| x.narrow(3, 0, 1)?.squeeze(0)?.interpolate1d(5)),
    ("avg_pool2d of 1", |x| x.avg_pool2d(1)),
    ("max_pool2d of 1", |x| x.max_pool2d(1)),
    ("fftshift of no axes", |x| fft::fftshift(x, Vec::<usize>::new())),
    ("fftshift", |x| fft::fftshift(x, 0)),
    ("ifft of one element", |x| fft::ifft(&x.narrow(3, 0, 2)?, None, 0, fft::Norm::Backward)),
    ("matrix_power 1", |x| linalg::matrix_power(&x.narrow(3, 0, 2)?, 1)),
];

/// Of integers: a limit that no integer reaches, decimals that no integer has.
const OF_INTEGERS: &[(&str, Operation)] = &[
    ("clamp", |x| x.clamp(f64::NEG_INFINITY, f64::INFINITY)),
    ("maximum", |x| x.maximum(f64::NEG_INFINITY)),
    ("minimum", |x| x.minimum(f64::INFINITY)),
    ("round_to", |x| x.round_to(2)),
    ("abs", |x| x.abs()),
];

fn value() -> Result<Tensor> {
    Tensor::arange(1f32, 7., CPU)?.reshape((1, 1, 2, 3))?.copy()
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// Whether a write into `x` shows in `operation(x)`; `computed` says whether the result was read before.
fn shows(x: &Tensor, operation: Operation, computed: bool) -> Result<bool> {
    let y = operation(x)?;
    let want = numbers(&operation(&x.copy()?)?)?;
    if computed {
        assert_eq!(numbers(&y)?, want);
    }
    x.const_set(77.)?;
    let got = numbers(&y)?;
    if got == want {
        return Ok(false);
    }
    assert!(got.iter().all(|&v| v == 77.), "neither the old nor the new value: {got:?}");
    Ok(true)
}

#[test]
fn views_show_what_is_written() -> Result<()> {
    for (name, operation) in VIEWS {
        for computed in [false, true] {
            assert!(shows(&value()?, *operation, computed)?, "{name} does not show a write");
        }
    }
    Ok(())
}

#[test]
fn operations_keep_what_they_saw() -> Result<()> {
    for (name, operation) in OPERATIONS {
        for computed in [false, true] {
            assert!(!shows(&value()?, *operation, computed)?, "{name} shows a write");
        }
    }
    for (name, operation) in OF_INTEGERS {
        assert!(!shows(&value()?.to_dtype(DType::I32)?, *operation, false)?, "{name} of integers shows a write");
    }
    Ok(())
}

#[test]
fn results_can_be_written_alone() -> Result<()> {
    for (name, operation) in OPERATIONS {
        let x = value()?;
        let y = operation(&x)?;
        y.zero_set().unwrap_or_else(|e| panic!("{name} cannot be written: {e}"));
        assert!(numbers(&y)?.iter().all(|&v| v == 0.), "{name}");
        assert_eq!(numbers(&x)?, [1., 2., 3., 4., 5., 6.], "a write into {name} shows in what it came from");
    }
    Ok(())
}

/// The same of what a gradient goes through: the gradient stays, and a write into the result does not count as one into the
/// variable.
#[test]
fn tracked_results_can_be_written_alone() -> Result<()> {
    let unlike: HashSet<&str> = ["sort of single elements", "topk of single elements"].into();
    for (name, operation) in OPERATIONS.iter().filter(|row| !unlike.contains(row.0)) {
        let var = Var::from_tensor(&value()?)?;
        let y = operation(&var)?;
        let before = y.sum_all()?;
        y.zero_set().unwrap_or_else(|e| panic!("{name} cannot be written: {e}"));
        assert_eq!(numbers(&var)?, [1., 2., 3., 4., 5., 6.], "a write into {name} shows in the variable");
        let grads = before.backward().unwrap_or_else(|e| panic!("{name}: {e}"));
        let grad = numbers(grads.get(&var).unwrap_or_else(|| panic!("{name} lost its gradient")))?;
        assert!(grad.iter().any(|&g| g != 0.), "{name}: {grad:?}");
        // What was written over the result has no gradient.
        let after = y.sum_all()?.backward()?;
        let gone = after.get(&var).map(numbers).transpose()?;
        assert!(gone.is_none_or(|g| g.iter().all(|&g| g == 0.)), "{name} has a gradient after the write");
    }
    Ok(())
}

/// A variable that is set does not show either, and one result does not show in another.
#[test]
fn variables_that_are_set() -> Result<()> {
    for (name, operation) in OPERATIONS {
        let var = Var::from_tensor(&value()?)?;
        let (y, z) = (operation(&var)?, operation(&var)?);
        let want = numbers(&y)?;
        var.set(&value()?.zeros_like()?)?;
        assert_eq!(numbers(&y)?, want, "{name} shows what the variable is set to");
        y.const_set(9.)?;
        assert_eq!(numbers(&z)?, want, "{name}: one result shows in another");
    }
    Ok(())
}

/// What is written into a result that shares its value is tracked.
#[test]
fn what_is_written_into_a_shared_value_is_tracked() -> Result<()> {
    let x = value()?;
    let y = Tensor::cat(&[&x], 0)?;
    let var = Var::new([[[[10f32]]]], CPU)?;
    y.slice_set(&(var.as_tensor() * 2.)?, 3, 0).expect_err("other axes differ");
    y.narrow(2, 0, 1)?.slice_set(&(var.as_tensor() * 2.)?, 3, 0)?;
    assert_eq!(numbers(&y)?, [20., 2., 3., 4., 5., 6.]);
    assert_eq!(numbers(&x)?, [1., 2., 3., 4., 5., 6.]);
    let grads = y.sum_all()?.backward()?;
    assert_eq!(numbers(grads.get(&var).expect("written into y"))?, [2.]);
    Ok(())
}
