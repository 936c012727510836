//! Odd inputs, on every device: nothing at all, scalars, the ends of 64-bit integers, NaN and signed zeros, F16 at its limits,
//! writes into views of narrow elements. Each line is an expression and what it must give; all that fail are listed.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tallow::{D, DType, Device, Element, IndexOp, Result, Tensor};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;
const MAX: i64 = i64::MAX;
const MIN: i64 = i64::MIN;
/// Not an f64.
const ODD: i64 = (1 << 53) + 1;

fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    all.extend(tallow::block_on(Device::by_name("wgpu")).map_err(|error| eprintln!("skipped: wgpu: {error}")));
    all
}

fn all<T: Element>(x: Tensor) -> Result<Vec<T>> {
    x.flatten_all()?.to_vec1()
}

/// The elements, rounded to the tensor's own dtype as every result is that is read or kept.
fn floats(x: Tensor) -> Result<Vec<f32>> {
    match x.dtype() {
        DType::F16 => Ok(all::<half::f16>(x)?.iter().map(|v| v.to_f32()).collect()),
        DType::BF16 => Ok(all::<half::bf16>(x)?.iter().map(|v| v.to_f32()).collect()),
        _ => all(x),
    }
}

/// What went otherwise than it should.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn is<T: Debug, W: Debug>(&mut self, what: &str, run: impl FnOnce() -> Result<T>, want: W) {
        let got = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(got)) => format!("{got:?}"),
            Ok(Err(error)) => format!("error: {error}"),
            Err(_) => "a panic".into(),
        };
        if got != format!("{want:?}") {
            self.0.push(format!("{what}\n    gives {got}\n    not   {want:?}"));
        }
    }

    fn fails<T: Debug>(&mut self, what: &str, run: impl FnOnce() -> Result<T>) {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(got)) => self.0.push(format!("{what}\n    gives {got:?}, not an error")),
            Ok(Err(error)) if error.to_string().len() < 12 => self.0.push(format!("{what}: says only {error}")),
            Ok(Err(_)) => {}
            Err(_) => self.0.push(format!("{what}\n    panics")),
        }
    }
}

/// `expression => value;` lines, and `expression => error;` ones.
macro_rules! lines {
    ($faults:ident, $device:ident; ) => {};
    ($faults:ident, $device:ident; $e:expr => error; $($rest:tt)*) => {
        $faults.fails(&format!("{:?}: {}", $device, stringify!($e)), || Ok($e));
        lines!($faults, $device; $($rest)*);
    };
    ($faults:ident, $device:ident; $e:expr => $want:expr; $($rest:tt)*) => {
        $faults.is(&format!("{:?}: {}", $device, stringify!($e)), || Ok($e), $want);
        lines!($faults, $device; $($rest)*);
    };
}

fn on_each(run: impl Fn(&Device, &mut Faults) -> Result<()>) -> Result<()> {
    let mut faults = Faults::default();
    for device in devices() {
        run(&device, &mut faults)?;
    }
    assert!(faults.0.is_empty(), "{} faults:\n{}", faults.0.len(), faults.0.join("\n"));
    Ok(())
}

#[test]
fn nothing_at_all() -> Result<()> {
    on_each(|d, f| {
        let none = Tensor::zeros((0, 3), DType::F32, d)?;
        let wide = Tensor::zeros((3, 0), DType::F32, d)?;
        let row = Tensor::new([[1f32, 2., 3.]], d)?;
        let no_ids = Tensor::zeros(0, DType::U32, d)?;
        let empty: Vec<f32> = Vec::new();
        lines! { f, d;
            all::<f32>(none.sum(0)?)? => [0f32; 3];
            all::<f32>(none.sum(1)?)? => &empty;
            all::<f32>(none.mean(0)?)? => [NAN; 3];
            all::<f32>(none.prod(0)?)? => [1f32; 3];
            all::<f32>(none.log_sum_exp(0)?)? => [-INF; 3];
            all::<f32>(none.var(0)?)? => [NAN; 3];
            none.norm()?.to_scalar::<f32>()? => 0f32;
            none.sum_all()?.to_scalar::<f32>()? => 0f32;
            all::<f32>(none.max(0)?)? => error;
            all::<u32>(none.argmin(0)?)? => error;
            all::<u32>(none.argmax(1)?)? => Vec::<u32>::new();
            all::<f32>(none.max(1)?)? => &empty;
            all::<f32>(wide.matmul(&none)?)? => [0f32; 9];
            none.matmul(&row.t()?)?.dims().to_vec() => [0, 1];
            all::<f32>(wide.softmax_last_dim()?)? => &empty;
            all::<f32>(none.softmax_last_dim()?)? => &empty;
            all::<f32>(wide.layer_norm(1e-5)?)? => &empty;
            all::<f32>(wide.rms_norm(1e-5)?)? => &empty;
            all::<f32>(none.cumsum(0)?)? => &empty;
            all::<f32>(none.sort(0, true)?.0)? => &empty;
            all::<f32>(wide.sort(1, true)?.0)? => &empty;
            all::<f32>(row.index_select(&no_ids, 0)?)? => &empty;
            row.index_select(&no_ids, 1)?.dims().to_vec() => [1, 0];
            all::<f32>(none.index_select(&Tensor::new([0u32], d)?, 0)?)? => error;
            all::<f32>(row.index_add(&no_ids, &none, 0)?)? => [1f32, 2., 3.];
            all::<f32>(row.scatter_add(&Tensor::zeros((0, 3), DType::U32, d)?, &none, 0)?)? => [1f32, 2., 3.];
            none.broadcast_add(&row)?.dims().to_vec() => [0, 3];
            none.narrow(1, 0, 1)?.broadcast_mul(&row)?.dims().to_vec() => [0, 3];
            Tensor::zeros(0, DType::F32, d)?.broadcast_add(&Tensor::zeros(1, DType::F32, d)?)?.dims().to_vec() => [0];
            Tensor::zeros(0, DType::F32, d)?.broadcast_add(&Tensor::zeros(2, DType::F32, d)?)?.dims().to_vec() => error;
            none.reshape((0, ()))?.dims().to_vec() => error;
            none.reshape(((), 3))?.dims().to_vec() => [0, 3];
            none.to_vec2::<f32>()? => Vec::<Vec<f32>>::new();
            wide.to_vec2::<f32>()? => vec![empty.clone(); 3];
            all::<f32>(Tensor::cat(&[&none, &row, &none], 0)?)? => [1f32, 2., 3.];
            all::<f32>(none.pad_with_zeros(0, 1, 0)?)? => [0f32; 3];
            none.pad_with_same(0, 1, 0)?.dims().to_vec() => error;
            all::<f32>(row.repeat((0, 2))?)? => &empty;
            all::<f32>(none.flip(0)?.roll(1, 0)?)? => &empty;
            none.nonzero()?.dims().to_vec() => [0, 2];
            all::<f32>(Tensor::einsum("ij,jk->ik", &[&wide, &none])?)? => [0f32; 9];
            Tensor::einsum("ij->", &[&none])?.to_scalar::<f32>()? => 0f32;
            all::<f32>(none.ge(0.)?.where_cond(&none, &none)?)? => &empty;
            { none.const_set(5.)?; all::<f32>(none.copy()?)? } => &empty;
            { let x = row.copy()?; x.narrow(1, 1, 0)?.zero_set()?; all::<f32>(x)? } => [1f32, 2., 3.];
            { let x = row.copy()?; x.slice_set(&wide.narrow(0, 0, 1)?, 1, 3)?; all::<f32>(x)? } => [1f32, 2., 3.];
            none.chunk(3, 0)?.len() => 1;
            all::<u32>(Tensor::arange(5u32, 5, d)?)? => Vec::<u32>::new();
            none.to_dtype(DType::I64)?.to_device(&Device::Cpu)?.dims().to_vec() => [0, 3];
            none.cumprod(0)?.cummax(1)?.dims().to_vec() => [0, 3];
            all::<f32>(Tensor::zeros((0, 2, 4, 4), DType::F32, d)?.conv2d(&Tensor::zeros((3, 2, 3, 3), DType::F32, d)?, 0, 1, 1, 1)?)? => &empty;
            Tensor::zeros((0, 2, 4, 4), DType::F32, d)?.max_pool2d(2)?.dims().to_vec() => [0, 2, 2, 2];
            Tensor::zeros((0, 2, 4, 4), DType::F32, d)?.upsample_nearest2d(8, 8)?.dims().to_vec() => [0, 2, 8, 8];
            all::<f32>(none.topk(0, 0, true)?.0)? => &empty;
            all::<f32>(none.topk(1, 0, true)?.0)? => error;
            none.median(0)?.dims().to_vec() => error;
            none.dims2()? => (0, 3);
        }
        Ok(())
    })
}

#[test]
fn scalars() -> Result<()> {
    on_each(|d, f| {
        let s = Tensor::new(3f32, d)?;
        lines! { f, d;
            s.sum_all()?.to_scalar::<f32>()? => 3f32;
            s.mean_all()?.to_scalar::<f32>()? => 3f32;
            s.max_all()?.to_scalar::<f32>()? => 3f32;
            s.prod_all()?.to_scalar::<f32>()? => 3f32;
            s.sum(0)? => error;
            s.argmax(D::Minus1)? => error;
            s.t()? => error;
            s.squeeze(0)? => error;
            s.cumsum(0)? => error;
            s.softmax_last_dim()? => error;
            s.layer_norm(1e-5)? => error;
            s.rms_norm(1e-5)? => error;
            s.sort_last_dim(true)? => error;
            s.matmul(&s)? => error;
            s.broadcast_matmul(&s)? => error;
            s.index_select(&Tensor::new([0u32], d)?, 0)? => error;
            s.narrow(0, 0, 1)? => error;
            s.i(0)? => error;
            s.to_vec1::<f32>()? => error;
            Tensor::cat(&[&s, &s], 0)? => error;
            s.tril(0)? => error;
            s.get(0)? => error;
            s.chunk(1, 0)? => error;
            all::<f32>(Tensor::stack(&[&s, &s], 0)?)? => [3f32, 3.];
            s.unsqueeze(0)?.dims().to_vec() => [1];
            s.unsqueeze(D::Minus1)?.dims().to_vec() => [1];
            s.flatten_all()?.dims().to_vec() => [1];
            s.reshape((1, 1, 1))?.dims().to_vec() => [1, 1, 1];
            all::<f32>(s.broadcast_as((2, 2))?)? => [3f32; 4];
            all::<f32>(s.broadcast_add(&Tensor::new([1f32, 2.], d)?)?)? => [4f32, 5.];
            all::<f32>(s.repeat(3)?)? => [3f32; 3];
            Tensor::einsum(",->", &[&s, &s])?.to_scalar::<f32>()? => 9f32;
            { let x = s.copy()?; x.const_set(4.)?; x.to_scalar::<f32>()? } => 4f32;
            { let x = s.copy()?; x.assign(&s.broadcast_as((1, 1))?)?; x.to_scalar::<f32>()? } => error;
            s.gt(2.)?.where_cond(&s, &s.neg()?)?.to_scalar::<f32>()? => 3f32;
            s.nonzero()?.dims().to_vec() => [1, 0];
            Tensor::new([5u8, 6], d)?.i(1)?.to_scalar::<u8>()? => 6u8;
        }
        Ok(())
    })
}

#[test]
fn the_ends_of_64_bits() -> Result<()> {
    on_each(|d, f| {
        let x = Tensor::new([MIN, MIN + 1, -1, 0, ODD, MAX], d)?;
        let u = Tensor::new([0u64, ODD as u64, 1 << 63, u64::MAX - 1, u64::MAX], d)?;
        let near = Tensor::new([ODD - 1, ODD, ODD + 1, -ODD, -ODD - 1], d)?;
        lines! { f, d;
            all::<i64>((&x + &Tensor::ones_like(&x)?)?)? => [MIN + 1, MIN + 2, 0, 1, ODD + 1, MIN];
            all::<i64>(x.neg()?)? => [MIN, MAX, 1, 0, -ODD, -MAX];
            all::<i64>(x.abs()?)? => [MIN, MAX, 1, 0, ODD, MAX];
            all::<i64>(x.sqr()?)? => [0, 1, 1, 0, ODD.wrapping_mul(ODD), 1];
            all::<i64>((&x / &Tensor::full(-1i64, 6, d)?)?)? => [MIN, MAX, 1, 0, -ODD, -MAX];
            all::<i64>((&x / &x.zeros_like()?)?)? => [0i64; 6];
            all::<i64>(x.rem(&Tensor::full(-1i64, 6, d)?)?)? => [0i64; 6];
            all::<i64>(x.rem(&x.zeros_like()?)?)? => [MIN, MIN + 1, -1, 0, ODD, MAX];
            all::<i64>(x.sign()?)? => [-1i64, -1, -1, 0, 1, 1];
            x.max_all()?.to_scalar::<i64>()? => MAX;
            x.min_all()?.to_scalar::<i64>()? => MIN;
            x.argmax(0)?.to_scalar::<u32>()? => 5u32;
            x.argmin(0)?.to_scalar::<u32>()? => 0u32;
            near.argmax(0)?.to_scalar::<u32>()? => 2u32;
            near.argmin(0)?.to_scalar::<u32>()? => 4u32;
            all::<i64>(near.sort(0, false)?.0)? => [-ODD - 1, -ODD, ODD - 1, ODD, ODD + 1];
            all::<u32>(near.arg_sort(0, true)?)? => [2u32, 1, 0, 3, 4];
            all::<u64>(u.sort(0, true)?.0)? => [u64::MAX, u64::MAX - 1, 1 << 63, ODD as u64, 0];
            u.argmax(0)?.to_scalar::<u32>()? => 4u32;
            u.max_all()?.to_scalar::<u64>()? => u64::MAX;
            all::<u8>(near.eq(ODD)?)? => [0u8, 1, 0, 0, 0];
            all::<u8>(near.lt(ODD)?)? => [1u8, 0, 0, 1, 1];
            all::<u8>(near.lt(9007199254740994.)?)? => [1u8, 1, 0, 1, 1];
            all::<u8>(u.gt(u64::MAX - 1)?)? => [0u8, 0, 0, 0, 1];
            all::<u8>(u.gt(-1.)?)? => [1u8; 5];
            all::<u8>(x.lt(1e30)?)? => [1u8; 6];
            all::<i64>(near.maximum(ODD)?)? => [ODD, ODD, ODD + 1, ODD, ODD];
            all::<u64>(u.minimum(u64::MAX - 1)?)? => [0, ODD as u64, 1 << 63, u64::MAX - 1, u64::MAX - 1];
            all::<u64>(u.clamp(1u64, (1u64 << 63) + 1)?)? => [1, ODD as u64, 1 << 63, (1 << 63) + 1, (1 << 63) + 1];
            x.sum_all()?.to_scalar::<i64>()? => MIN.wrapping_add(MIN + 1).wrapping_add(-1).wrapping_add(ODD).wrapping_add(MAX);
            u.sum_all()?.to_scalar::<u64>()? => (ODD as u64).wrapping_add(1 << 63).wrapping_sub(3);
            all::<i64>(near.cumsum(0)?)? => [ODD - 1, 2 * ODD - 1, 3 * ODD, 2 * ODD, ODD - 1];
            all::<i64>(near.cummax(0)?)? => [ODD - 1, ODD, ODD + 1, ODD + 1, ODD + 1];
            Tensor::new([ODD, 3], d)?.prod_all()?.to_scalar::<i64>()? => ODD * 3;
            all::<u64>(x.to_dtype(DType::U64)?)? => [1u64 << 63, (1 << 63) + 1, u64::MAX, 0, ODD as u64, MAX as u64];
            all::<i64>(u.to_dtype(DType::I64)?)? => [0i64, ODD, MIN, -2, -1];
            all::<u32>(x.to_dtype(DType::U32)?)? => [0u32, 1, u32::MAX, 0, 1, u32::MAX];
            all::<i8>(x.to_dtype(DType::I8)?)? => [0i8, 1, -1, 0, 1, -1];
            all::<f32>(x.to_dtype(DType::F32)?)? => [MIN as f32, MIN as f32, -1., 0., ODD as f32, MAX as f32];
            all::<f32>(u.to_dtype(DType::F32)?)? => [0f32, ODD as f32, 9.223372e18, 1.8446744e19, 1.8446744e19];
            all::<i64>(Tensor::new([1e19f32, -1e19, INF, -INF, NAN, -1.9, 9.223372e18], d)?.to_dtype(DType::I64)?)? => [MAX, MIN, MAX, MIN, 0, -1, 9.223372e18f32 as i64];
            all::<u64>(Tensor::new([1e20f32, -1., INF, NAN, 1.8446743e19], d)?.to_dtype(DType::U64)?)? => [u64::MAX, 0, u64::MAX, 0, 1.8446743e19f32 as u64];
            // Between the nearest F32 and its neighbour, past the half by one bit: rounding once, to even.
            all::<f32>(Tensor::new([(1i64 << 40) + (1 << 16), (1 << 40) + (1 << 16) + 1, (1 << 40) + 3 * (1 << 16)], d)?.to_dtype(DType::F32)?)?
                => [((1i64 << 40) + (1 << 16)) as f32, ((1i64 << 40) + (1 << 16) + 1) as f32, ((1i64 << 40) + 3 * (1 << 16)) as f32];
            all::<half::f16>(Tensor::new([2049i64, 2051, 65519, 65520, -70000], d)?.to_dtype(DType::F16)?)? => [2048., 2052., 65504., INF, -INF].map(half::f16::from_f32);
            all::<i64>(Tensor::arange(ODD, ODD + 3, d)?)? => [ODD, ODD + 1, ODD + 2];
            all::<i64>(Tensor::arange(MAX - 2, MAX, d)?)? => [MAX - 2, MAX - 1];
            all::<i64>(Tensor::arange_step(MAX, MAX - 5, -2, d)?)? => [MAX, MAX - 2, MAX - 4];
            all::<u64>(Tensor::arange(u64::MAX - 2, u64::MAX, d)?)? => [u64::MAX - 2, u64::MAX - 1];
            all::<i64>(Tensor::arange(MIN, MAX, d)?)? => error;
            all::<i64>(Tensor::arange_step(MIN, MAX, MAX, d)?)? => [MIN, -1, MAX - 1];
            all::<u8>(Tensor::arange_step(250u8, 255, 2, d)?)? => [250u8, 252, 254];
            all::<i64>(Tensor::full(ODD, 2, d)?)? => [ODD, ODD];
            all::<i64>(x.index_select(&Tensor::new([5i64, 0], d)?, 0)?)? => [MAX, MIN];
            all::<i64>(x.index_select(&Tensor::new([1i64 << 32], d)?, 0)?)? => error;
            all::<i64>(x.index_select(&Tensor::new([-1i64], d)?, 0)?)? => error;
            all::<i64>(x.index_select(&Tensor::new([-1i32], d)?, 0)?)? => error;
            all::<i64>(x.index_select(&Tensor::new([-1i8], d)?, 0)?)? => error;
            all::<i64>(x.index_select(&Tensor::new([MIN], d)?, 0)?)? => error;
            all::<i64>(x.gather(&Tensor::new([(1u64 << 32) + 1], d)?, 0)?)? => error;
            all::<i64>(x.index_select(&Tensor::new([MAX, 1], d)?, 0)?)? => [0, MIN + 1];
            all::<i64>(x.zeros_like()?.scatter_add(&Tensor::new([0u32, 0, 1, 1, 2, 2], d)?, &x, 0)?)? => [1, -1, MIN + ODD - 1, 0, 0, 0];
            all::<i64>(x.flip(0)?.narrow(0, 1, 2)?)? => [ODD, 0];
            all::<i64>(x.bitwise_not()?)? => [MAX, MAX - 1, 0, -1, !ODD, MIN];
            { let y = x.copy()?; y.narrow(0, 1, 2)?.zero_set()?; all::<i64>(y)? } => [MIN, 0, 0, 0, ODD, MAX];
            { let y = x.copy()?; y.narrow(0, 1, 1)?.assign(&Tensor::new([ODD], d)?)?; all::<i64>(y)? } => [MIN, ODD, -1, 0, ODD, MAX];
            all::<i64>(x.gt(0.)?.where_cond(&x, &x.neg()?)?)? => [MIN, MAX, 1, 0, ODD, MAX];
            all::<u32>(x.nonzero()?)? => [0u32, 1, 2, 4, 5];
            all::<i64>(x.unsqueeze(0)?.broadcast_add(&near.narrow(0, 1, 1)?.unsqueeze(1)?)?)? => [MIN + ODD, MIN + ODD + 1, ODD - 1, ODD, 2 * ODD, MAX.wrapping_add(ODD)];
            all::<i64>((&x * 2.)?)? => [0, 2, -2, 0, 2 * ODD, -2];
            all::<i64>((&x * 0.5)?)? => error;
        }
        Ok(())
    })
}

#[test]
fn not_numbers_and_signed_zeros() -> Result<()> {
    on_each(|d, f| {
        let minus_nan = f32::from_bits(0xFFC0_0001);
        let x = Tensor::new([1f32, NAN, -INF, minus_nan, INF, -0., 0.], d)?;
        let tail = Tensor::new([2f32, INF, NAN], d)?;
        let bits = |x: Tensor| -> Result<Vec<String>> {
            Ok(floats(x)?.iter().map(|v| if v.is_nan() { "nan".into() } else { format!("{v:?}") }).collect())
        };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = x.to_dtype(dtype)?;
            let tail = tail.to_dtype(dtype)?;
            lines! { f, d;
                x.argmax(0)?.to_scalar::<u32>()? => 1u32;
                x.argmin(0)?.to_scalar::<u32>()? => 1u32;
                tail.argmax(0)?.to_scalar::<u32>()? => 2u32;
                bits(x.max_all()?)? => ["nan"];
                bits(x.min_all()?)? => ["nan"];
                bits(x.sort(0, false)?.0)? => ["-inf", "-0.0", "0.0", "1.0", "inf", "nan", "nan"];
                all::<u32>(x.arg_sort(0, false)?)? => [2u32, 5, 6, 0, 4, 1, 3];
                all::<u32>(x.arg_sort(0, true)?)? => [1u32, 3, 4, 0, 5, 6, 2];
                all::<u32>(x.topk(3, 0, true)?.1)? => [1u32, 3, 4];
                all::<u32>(x.topk(2, 0, false)?.1)? => [2u32, 5];
                bits(x.median(0)?)? => ["nan"];
                bits(x.cummax(0)?)? => ["1.0", "nan", "nan", "nan", "nan", "nan", "nan"];
                bits(x.cummin(0)?)? => ["1.0", "nan", "nan", "nan", "nan", "nan", "nan"];
                bits(x.maximum(0.5f32)?)? => ["1.0", "nan", "0.5", "nan", "inf", "0.5", "0.5"];
                bits(x.minimum(&x.flip(0)?)?)? => ["0.0", "nan", "-inf", "nan", "-inf", "nan", "0.0"];
                bits(x.clamp(-1f32, 1f32)?)? => ["1.0", "nan", "-1.0", "nan", "1.0", "-0.0", "0.0"];
                bits(x.relu()?.abs()?)? => ["1.0", "nan", "0.0", "nan", "inf", "0.0", "0.0"];
                bits(x.abs()?)? => ["1.0", "nan", "inf", "nan", "inf", "0.0", "0.0"];
                bits(x.neg()?)? => ["-1.0", "nan", "inf", "nan", "-inf", "0.0", "-0.0"];
                bits(x.floor()?)? => ["1.0", "nan", "-inf", "nan", "inf", "-0.0", "0.0"];
                bits(x.sqrt()?.narrow(0, 0, 5)?)? => ["1.0", "nan", "nan", "nan", "inf"];
                bits(x.exp()?)? => ["2.7182817", "nan", "0.0", "nan", "inf", "1.0", "1.0"].map(|v| match dtype {
                    DType::F16 if v.len() > 5 => "2.71875",
                    DType::BF16 if v.len() > 5 => "2.71875",
                    _ => v,
                });
                bits(x.log()?)? => ["0.0", "nan", "nan", "nan", "inf", "-inf", "-inf"];
                bits(x.tanh()?)?[1..5].to_vec() => ["nan", "-1.0", "nan", "1.0"];
                bits(x.sigmoid()?)?[1..5].to_vec() => ["nan", "0.0", "nan", "1.0"];
                bits(x.silu()?)?[3..5].to_vec() => ["nan", "inf"];
                bits(x.gelu_erf()?)?[3..5].to_vec() => ["nan", "inf"];
                all::<u8>(x.eq(&x)?)? => [1u8, 0, 1, 0, 1, 1, 1];
                all::<u8>(x.ne(&x)?)? => [0u8, 1, 0, 1, 0, 0, 0];
                all::<u8>(x.ge(0f32)?)? => [1u8, 0, 0, 0, 1, 1, 1];
                all::<u8>(x.lt(f64::NAN)?)? => [0u8; 7];
                all::<u8>(x.ne(f64::NAN)?)? => [1u8; 7];
                all::<u8>(x.is_nan()?)? => [0u8, 1, 0, 1, 0, 0, 0];
                all::<i32>(x.to_dtype(DType::I32)?)? => [1, 0, i32::MIN, 0, i32::MAX, 0, 0];
                all::<u8>(x.to_dtype(DType::U8)?)? => [1u8, 0, 0, 0, 255, 0, 0];
                all::<u32>(x.nonzero()?)? => [0u32, 1, 2, 3, 4];
                bits(x.unsqueeze(0)?.softmax_last_dim()?)? => ["nan"; 7];
                bits(Tensor::new([-INF, -INF], d)?.softmax_last_dim()?)? => ["nan"; 2];
                bits(Tensor::new([-INF, -INF], d)?.log_sum_exp(0)?)? => ["-inf"];
                bits(Tensor::new([INF, 1.], d)?.log_sum_exp(0)?)? => ["inf"];
                bits((&x * 0.)?)? => ["0.0", "nan", "nan", "nan", "nan", "-0.0", "0.0"];
                bits((&x / &x)?)? => ["1.0", "nan", "nan", "nan", "nan", "nan", "nan"];
                bits(x.recip()?)? => ["1.0", "nan", "-0.0", "nan", "0.0", "-inf", "inf"];
                bits(x.is_nan()?.where_cond(&x.zeros_like()?, &x)?)? => ["1.0", "0.0", "-inf", "0.0", "inf", "-0.0", "0.0"];
            }
        }
        Ok(())
    })
}

#[test]
fn narrow_floats_at_their_limits() -> Result<()> {
    on_each(|d, f| {
        let half = |v: &[f32]| Tensor::from_slice(v, v.len(), d)?.to_dtype(DType::F16);
        let brain = |v: &[f32]| Tensor::from_slice(v, v.len(), d)?.to_dtype(DType::BF16);
        let back = floats;
        let tiny = 2f32.powi(-24);
        let one = 1. + 2f32.powi(-8);
        lines! { f, d;
            back(half(&[65504., 65519.99, 65520., -65520., 1e6, INF])?)? => [65504., 65504., INF, -INF, INF, INF];
            back(half(&[tiny, tiny / 2., tiny * 0.75, tiny * 1.5, -tiny / 4.])?)? => [tiny, 0., tiny, 2. * tiny, -0.];
            back(half(&[2049., 2051., 0.1])?)? => [2048f32, 2052., half::f16::from_f32(0.1).to_f32()];
            back(brain(&[one, one + 2f32.powi(-20), 1. + 3. * 2f32.powi(-8), f32::MAX, 1e-40])?)?
                => [1f32, 1. + 2f32.powi(-7), 1. + 2f32.powi(-6), INF, half::bf16::from_f32(1e-40).to_f32()];
            back((half(&[65504.])? + half(&[65504.])?)?)? => [INF];
            back(half(&[60000., 60000.])?.sum(0)?)? => [INF];
            back(half(&[60000., 60000.])?.mean(0)?)? => [60000f32];
            back(half(&[300., 300.])?.sqr()?)? => [INF, INF];
            back((half(&[60000., -60000.])?.sum(0)? + 1.)?)? => [1f32];
            back(half(&[65504., 0.])?.softmax_last_dim()?)? => [1f32, 0.];
            back(half(&[300., 400.])?.norm()?)? => [500f32];
            back(half(&[300., -300.])?.layer_norm(1e-5)?)? => [1f32, -1.];
            back(half(&[12.])?.exp()?)? => [INF];
            back(half(&[tiny, tiny])?.sum(0)?)? => [2. * tiny];
            back((half(&[tiny])? * 0.5)?)? => [0f32];
            back(half(&[1.; 4096])?.sum(0)?)? => [4096f32];
            back(half(&[256.; 512])?.reshape((1, 512))?.matmul(&half(&[1.; 512])?.reshape((512, 1))?)?)? => [INF];
            back(half(&[127.; 512])?.reshape((1, 512))?.matmul(&half(&[1.; 512])?.reshape((512, 1))?)?)? => [65024f32];
            back(brain(&[256.; 512])?.reshape((1, 512))?.matmul(&brain(&[1.; 512])?.reshape((512, 1))?)?)? => [131072f32];
            back(half(&[60000., 60000., -60000.])?.cumsum(0)?)? => [60000., INF, 60000.];
        }
        Ok(())
    })
}

/// Elements of one, two and eight bytes at every offset: a word on a GPU holds several, and writes must leave its neighbours
/// alone.
#[test]
fn writes_into_views() -> Result<()> {
    on_each(|d, f| {
        for dtype in [DType::U8, DType::I8, DType::I16, DType::F16, DType::BF16, DType::F8E4M3, DType::U32, DType::I64]
        {
            let new = || Tensor::arange(0f32, 13., d)?.to_dtype(dtype);
            let shown = |x: &Tensor| -> Result<Vec<u8>> {
                all::<f32>(x.to_dtype(DType::F32)?).map(|v| v.iter().map(|&v| v as u8).collect())
            };
            let base: Vec<u8> = (0..13).collect();
            for start in 0..13 {
                for len in 0..=13 - start {
                    let what = format!("{d:?} {dtype} {start}+{len}");
                    let mut want = base.clone();
                    want[start..start + len].fill(9);
                    f.is(
                        &what,
                        || {
                            let x = new()?;
                            x.narrow(0, start, len)?.const_set(9.)?;
                            shown(&x)
                        },
                        &want,
                    );
                }
            }
            lines! { f, d;
                { let x = new()?; x.flip(0)?.narrow(0, 0, 2)?.const_set(7.)?; shown(&x)? } => { let mut w = base.clone(); w[11..].fill(7); w };
                // Over itself, moved: what is read is the old value.
                { let x = new()?; x.narrow(0, 1, 12)?.assign(&x.narrow(0, 0, 12)?)?; shown(&x)? } => [0u8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
                { let x = new()?; x.narrow(0, 0, 12)?.assign(&x.narrow(0, 1, 12)?)?; shown(&x)? } => [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12];
                { let x = new()?; x.assign(&x.flip(0)?)?; shown(&x)? } => (0..13u8).rev().collect::<Vec<_>>();
                { let x = new()?; x.flip(0)?.assign(&x)?; shown(&x)? } => (0..13u8).rev().collect::<Vec<_>>();
                { let x = new()?.narrow(0, 0, 9)?.reshape((3, 3))?.copy()?; x.assign(&x.t()?)?; shown(&x)? } => [0u8, 3, 6, 1, 4, 7, 2, 5, 8];
                { let x = new()?.narrow(0, 0, 9)?.reshape((3, 3))?.copy()?; x.diagonal(0, 0, 1)?.const_set(9.)?; shown(&x)? } => [9u8, 1, 2, 3, 9, 5, 6, 7, 9];
                { let x = new()?.narrow(0, 0, 12)?.reshape((4, 3))?.copy()?; x.narrow(1, 1, 1)?.const_set(0.)?; shown(&x)? } => [0u8, 0, 2, 3, 0, 5, 6, 0, 8, 9, 0, 11];
                { let x = new()?.narrow(0, 0, 12)?.reshape((4, 3))?.copy()?; x.t()?.slice_set(&Tensor::ones((3, 2), dtype, d)?, 1, 1)?; shown(&x)? } => [0u8, 1, 2, 1, 1, 1, 1, 1, 1, 9, 10, 11];
                { let x = new()?; let y = (&x + &x)?; x.zero_set()?; shown(&y)? } => if dtype == DType::F8E4M3 { vec![0u8, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24] } else { (0..13u8).map(|v| 2 * v).collect() };
                { let x = new()?; x.unsqueeze(0)?.broadcast_as((2, 13))?.zero_set()? } => error;
                { let x = new()?; for i in 0..13 { x.narrow(0, i, 1)?.assign(&x.narrow(0, 12 - i, 1)?)?; } shown(&x)? } => [12u8, 11, 10, 9, 8, 7, 6, 7, 8, 9, 10, 11, 12];
            }
        }
        let wide = Tensor::new([[1f32, 2., 3.], [4., 5., 6.]], d)?;
        let row = wide.narrow(0, 0, 1)?;
        lines! { f, d;
            // As many elements in another shape do not fit.
            { let x = wide.copy()?; x.assign(&wide.t()?.copy()?)?; all::<f32>(x)? } => error;
            { let x = wide.copy()?; x.assign(&wide.flatten_all()?)?; all::<f32>(x)? } => error;
            { let x = wide.copy()?; x.assign(&wide.unsqueeze(0)?)?; all::<f32>(x)? } => error;
            { let x = wide.copy()?; x.t()?.assign(&wide)?; all::<f32>(x)? } => error;
            { let x = wide.copy()?; x.assign(&row)?; all::<f32>(x)? } => [1f32, 2., 3., 1., 2., 3.];
            { let x = wide.copy()?; x.assign(&row.squeeze(0)?)?; all::<f32>(x)? } => [1f32, 2., 3., 1., 2., 3.];
            { let x = wide.copy()?; x.t()?.assign(&wide.t()?.flip(1)?)?; all::<f32>(x)? } => [4f32, 5., 6., 1., 2., 3.];
        }
        lines! { f, d;
            { let x = Tensor::zeros(3, DType::U8, d)?; x.const_set(300.)?; all::<u8>(x)? } => error;
            { let x = Tensor::zeros(3, DType::I64, d)?; x.const_set(ODD)?; all::<i64>(x)? } => [ODD; 3];
            { let x = Tensor::zeros(3, DType::U8, d)?; x.const_set(1.5)?; all::<u8>(x)? } => error;
            { let x = Tensor::zeros(3, DType::I64, d)?; x.const_set(-1.)?; all::<i64>(x)? } => [-1i64; 3];
            { let x = Tensor::zeros(3, DType::F16, d)?; x.const_set(1e6)?; all::<f32>(x.to_dtype(DType::F32)?)? } => [INF; 3];
        }
        Ok(())
    })
}

#[test]
fn roundings_wraps_and_many_axes() -> Result<()> {
    on_each(|d, f| {
        let bytes = Tensor::new([255u8, 255, 3, 200], d)?;
        let many = Tensor::arange(0f32, 256., d)?.reshape((2, 2, 2, 2, 2, 2, 2, 2))?;
        let turned = many.permute(vec![7, 5, 3, 1, 6, 4, 2, 0])?;
        // A tie, and one more: rounded once, it goes up.
        let tie = (1i64 << 40) + (1 << 32);
        lines! { f, d;
            all::<half::bf16>(Tensor::new([tie, tie + 1, -tie - 1], d)?.to_dtype(DType::BF16)?)?
                => [tie as f64, (tie + 1) as f64, (-tie - 1) as f64].map(half::bf16::from_f64);
            all::<f32>(Tensor::new([(1u64 << 63) + (1 << 39), (1 << 63) + (1 << 39) + 1], d)?.to_dtype(DType::F32)?)?
                => [((1u64 << 63) + (1 << 39)) as f32, ((1u64 << 63) + (1 << 39) + 1) as f32];
            all::<u32>(Tensor::new([4294967296f32, -0.9, 4294967040., NAN], d)?.to_dtype(DType::U32)?)? => [u32::MAX, 0, 4294967040, 0];
            all::<i8>(Tensor::new([127.9f32, -128.9, 200., -200.], d)?.to_dtype(DType::I8)?)? => [127i8, -128, 127, -128];
            bytes.sum_all()?.to_scalar::<u8>()? => 201u8;
            all::<u8>(bytes.cumsum(0)?)? => [255u8, 254, 1, 201];
            bytes.prod_all()?.to_scalar::<u8>()? => 255u8.wrapping_mul(255).wrapping_mul(3).wrapping_mul(200);
            all::<u8>((&bytes + &bytes)?)? => [254u8, 254, 6, 144];
            all::<u8>(bytes.neg()?)? => [1u8, 1, 253, 56];
            bytes.narrow(0, 1, 3)?.argmin(0)?.to_scalar::<u32>()? => 1u32;
            bytes.flip(0)?.argmax(0)?.to_scalar::<u32>()? => 2u32;
            all::<u8>(bytes.narrow(0, 1, 3)?.flip(0)?.sort(0, false)?.0)? => [3u8, 200, 255];
            all::<i16>(Tensor::new([i16::MIN, i16::MAX], d)?.abs()?)? => [i16::MIN, i16::MAX];
            all::<i64>(Tensor::new([3i64, 3, 2, -2, 0, 2, 5], d)?.pow(&Tensor::new([39i64, 41, 63, 63, 0, 64, 0], d)?)?)?
                => [3i64.pow(39), 3i64.wrapping_pow(41), MIN, MIN, 1, 0, 1];
            all::<i32>(Tensor::new([3i32, -1, 2], d)?.pow(&Tensor::new([21i32, 3, 31], d)?)?)? => [3i32.wrapping_pow(21), -1, i32::MIN];
            all::<f32>(turned.sum(vec![0, 1, 2, 3, 4, 5, 6])?)? => [8128f32, 24512.];
            all::<f32>(turned.max(vec![1, 2, 3, 4, 5, 6, 7])?)? => [254f32, 255.];
            turned.flip(vec![0, 1, 2, 3, 4, 5, 6, 7])?.i((0, 0, 0, 0, 0, 0, 0, 0))?.to_scalar::<f32>()? => 255f32;
            all::<f32>(turned.sum_keepdim((1, 6))?.narrow(0, 1, 1)?.flatten_all()?.narrow(0, 0, 2)?)?
                => all::<f32>(many.copy()?.permute(vec![7, 5, 3, 1, 6, 4, 2, 0])?.to_device(&Device::Cpu)?.copy()?.sum_keepdim((1, 6))?.narrow(0, 1, 1)?.flatten_all()?.narrow(0, 0, 2)?)?;
            all::<f32>(many.unsqueeze(0)?)? => error;
            all::<f32>(Tensor::ones((3, 4), DType::F32, d)?.broadcast_as((2, 3, 4))?.sum(0)?)? => [2f32; 12];
            all::<f32>(Tensor::arange(0f32, 4., d)?.unfold(0, 2, 1)?.cumsum(1)?)? => [0f32, 1., 1., 3., 2., 5.];
        }
        Ok(())
    })
}
