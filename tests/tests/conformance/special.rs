//! NaN, infinity, zero and limits: one documented rule on every device.

use tallow::{DType, Device, Tensor};
use tallow_tests::devices;

fn on_all(check: impl Fn(&str, &Device)) {
    for candidate in devices() {
        check(&candidate.name, &candidate.device);
    }
}

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn same(name: &str, what: &str, got: &[f32], want: &[f32]) {
    let fits = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| g == w || (g.is_nan() && w.is_nan()));
    assert!(fits, "{what} on {name}: {got:?}, not {want:?}");
}

#[test]
fn nan_and_infinity_go_through_maps() {
    on_all(|name, device| {
        let x = Tensor::new([NAN, INF, -INF, 0.0, -0.0, 1.0], device).unwrap();
        let read = |t: tallow::Result<Tensor>| t.unwrap().to_vec1::<f32>().unwrap();
        same(name, "relu", &read(x.relu()), &[NAN, INF, 0.0, 0.0, 0.0, 1.0]);
        same(name, "exp", &read(x.exp()), &[NAN, INF, 0.0, 1.0, 1.0, std::f32::consts::E]);
        same(name, "tanh", &read((x.clone() * 1e9).and_then(|x| x.tanh())), &[NAN, 1.0, -1.0, 0.0, 0.0, 1.0]);
        let one = Tensor::new([1f32; 6], device).unwrap();
        same(name, "maximum", &read(x.maximum(&one)), &[NAN, INF, 1.0, 1.0, 1.0, 1.0]);
        same(name, "minimum", &read(one.minimum(&x)), &[NAN, 1.0, -INF, 0.0, 0.0, 1.0]);
        let equal: Vec<u8> = x.eq(&x).unwrap().to_vec1().unwrap();
        assert_eq!(equal, [0, 1, 1, 1, 1, 1], "eq on {name}");
        let less: Vec<u8> = x.lt(&one).unwrap().to_vec1().unwrap();
        assert_eq!(less, [0, 0, 1, 1, 1, 0], "lt on {name}");
    });
}

#[test]
fn conversions_saturate_and_nan_becomes_zero() {
    on_all(|name, device| {
        let x = Tensor::new([NAN, INF, -INF, 300.0, -5.7, 5.7], device).unwrap();
        let bytes: Vec<u8> = x.to_dtype(DType::U8).unwrap().to_vec1().unwrap();
        assert_eq!(bytes, [0, 255, 0, 255, 0, 5], "u8 on {name}");
        let ints: Vec<i32> = x.to_dtype(DType::I32).unwrap().to_vec1().unwrap();
        assert_eq!(ints, [0, i32::MAX, i32::MIN, 300, -5, 5], "i32 on {name}");
        let wide: Vec<i64> = x.to_dtype(DType::I64).unwrap().to_vec1().unwrap();
        assert_eq!(wide, [0, i64::MAX, i64::MIN, 300, -5, 5], "i64 on {name}");
    });
}

#[test]
fn integers_wrap_and_division_by_zero_is_zero() {
    on_all(|name, device| {
        let x = Tensor::new([i32::MAX, i32::MIN, 7, -7], device).unwrap();
        let y = Tensor::new([1, -1, 0, 2], device).unwrap();
        let sum: Vec<i32> = (&x + &y).unwrap().to_vec1().unwrap();
        assert_eq!(sum, [i32::MIN, i32::MAX, 7, -5], "add on {name}");
        let div: Vec<i32> = (&x / &y).unwrap().to_vec1().unwrap();
        assert_eq!(div, [i32::MAX, i32::MIN, 0, -3], "div on {name}");
        let big = Tensor::new([u64::MAX, 1 << 40, 3_000_000_000], device).unwrap();
        let squared: Vec<u64> = (&big * &big).unwrap().to_vec1().unwrap();
        assert_eq!(squared, [1, 0, 9_000_000_000_000_000_000], "64-bit mul on {name}");
    });
}

#[test]
fn reductions_treat_nan_and_nothing_as_documented() {
    on_all(|name, device| {
        let x = Tensor::new([[1.0, NAN, 3.0], [-INF, 2.0, INF]], device).unwrap();
        same(name, "max", &x.max(1).unwrap().to_vec1().unwrap(), &[NAN, INF]);
        let first: Vec<u32> = x.argmax(1).unwrap().to_vec1().unwrap();
        assert_eq!(first, [1, 2], "argmax on {name}");
        let empty = Tensor::zeros((2, 0), DType::F32, device).unwrap();
        same(name, "sum", &empty.sum(1).unwrap().to_vec1().unwrap(), &[0.0, 0.0]);
        same(name, "mean", &empty.mean(1).unwrap().to_vec1().unwrap(), &[NAN, NAN]);
        assert!(empty.max(1).is_err(), "max of nothing on {name}");
    });
}

#[test]
fn an_index_out_of_range_is_an_error_at_the_read() {
    for candidate in devices() {
        let (name, device) = (&candidate.name, &candidate.device);
        let table = Tensor::new([[1f32, 2.], [3., 4.]], device).unwrap();
        let ids = Tensor::new([1u32, 5], device).unwrap();
        let error = table.index_select(&ids, 0).unwrap().to_vec2::<f32>().err();
        assert!(error.as_ref().is_some_and(|e| e.to_string().contains('5')), "{name}: {error:?}");
        // The device goes on working.
        let fine = table.index_select(&Tensor::new([1u32], device).unwrap(), 0).unwrap();
        assert_eq!(fine.to_vec2::<f32>().unwrap(), [[3., 4.]], "{name}");
    }
}

#[test]
fn the_largest_id_of_a_dtype_is_a_hole() {
    on_all(|name, device| {
        let table = Tensor::new([[1f32, 2.], [3., 4.]], device).unwrap();
        for (dtype, hole) in [(DType::U8, 255u64), (DType::U32, u32::MAX.into()), (DType::I64, i64::MAX as u64)] {
            // Exactly, in 64 bits, then in the dtype.
            let ids = Tensor::new([1u64, hole], device).unwrap().to_dtype(dtype).unwrap();
            let rows = table.index_select(&ids, 0).unwrap();
            let read = |x: tallow::Result<Tensor>| {
                let flat = x.and_then(|x| x.flatten_all()).and_then(|x| x.to_vec1::<f32>());
                flat.unwrap_or_else(|error| panic!("{name} {dtype}: {error}"))
            };
            same(name, "index_select", &read(Ok(rows)), &[3., 4., 0., 0.]);
            let square = ids.reshape((2, 1)).unwrap();
            let picked = table.gather(&square, 1);
            same(name, "gather", &read(picked), &[2., 0.]);
            let added = table.index_add(&ids, &table, 0);
            same(name, "index_add", &read(added), &[1., 2., 4., 6.]);
        }
    });
}

#[test]
fn writes_are_seen_by_views_and_not_by_results_built_before() {
    on_all(|name, device| {
        let base = Tensor::zeros((4, 3), DType::F32, device).unwrap();
        let view = base.t().unwrap();
        let before = base.sum_all().unwrap();
        base.slice_set(&Tensor::new([[1f32, 2., 3.]], device).unwrap(), 0, 2).unwrap();
        assert_eq!(before.to_scalar::<f32>().unwrap(), 0.0, "{name}");
        assert_eq!(view.to_vec2::<f32>().unwrap()[1], [0., 0., 2., 0.], "{name}");
        base.narrow(1, 0, 1).unwrap().const_set(9.0).unwrap();
        assert_eq!(base.sum_all().unwrap().to_scalar::<f32>().unwrap(), 41.0, "{name}");
    });
}

#[test]
fn the_same_seed_gives_the_same_numbers_everywhere() {
    let mut all: Vec<Vec<f32>> = Vec::new();
    on_all(|_, device| device.set_seed(7).unwrap());
    for candidate in devices() {
        candidate.device.set_seed(7).unwrap();
        let x = Tensor::rand(-1f32, 1., (3, 7), &candidate.device).unwrap();
        let normal = Tensor::randn(0f32, 1., 1001, &candidate.device).unwrap();
        let mean = normal.mean_all().unwrap().to_scalar::<f32>().unwrap();
        assert!(mean.abs() < 0.15, "{}: mean {mean}", candidate.name);
        all.push(x.flatten_all().unwrap().to_vec1().unwrap());
    }
    for other in &all[1..] {
        assert_eq!(&all[0], other);
    }
}

#[test]
fn devices_exchange_values() {
    let all = devices();
    for from in &all {
        for to in &all {
            let x = Tensor::arange(0f32, 6., &from.device).unwrap().reshape((2, 3)).unwrap();
            let there = (x.t().unwrap().to_device(&to.device).unwrap() + 1.0).unwrap();
            let back = there.to_device(&from.device).unwrap();
            assert_eq!(back.to_vec2::<f32>().unwrap(), [[1., 4.], [2., 5.], [3., 6.]], "{} to {}", from.name, to.name);
        }
    }
    let error = (Tensor::zeros(2, DType::F32, &all[0].device).unwrap()
        + Tensor::zeros(2, DType::F32, &all[1].device).unwrap())
    .unwrap_err();
    assert!(error.to_string().contains("to_device"), "{error}");
}
