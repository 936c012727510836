//! Printing: the texts that PyTorch prints between `tensor(` and `)` where its lines begin at column 0.

use std::sync::{Mutex, PoisonError};
use tallow::{DType, Device, Result, Tensor, display};

const CPU: &Device = &Device::Cpu;

/// Options are the program's, tests run together.
static TURN: Mutex<()> = Mutex::new(());

fn text(tensor: &Tensor) -> String {
    let all = tensor.to_string();
    let (body, footer) = all.rsplit_once('\n').expect("a last line");
    assert_eq!(footer, format!("{tensor:?}"));
    body.to_string()
}

#[test]
fn elements_as_pytorch_prints_them() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    display::set_print_options_default();
    let floats = |values: &[f64]| -> Result<String> { Ok(text(&Tensor::new(values, CPU)?)) };
    assert_eq!(floats(&[1., 2.5, -3.])?, "[ 1.0000,  2.5000, -3.0000]");
    assert_eq!(floats(&[1., 20., -3.])?, "[ 1., 20., -3.]");
    assert_eq!(floats(&[0., 0.])?, "[0., 0.]");
    assert_eq!(floats(&[-0., 1.])?, "[-0., 1.]");
    // Zeros, infinities and NaN do not count for the width.
    assert_eq!(floats(&[1., f64::NAN])?, "[1., nan]");
    assert_eq!(floats(&[1., f64::NEG_INFINITY, f64::INFINITY])?, "[1., -inf, inf]");
    assert_eq!(floats(&[0.5, f64::NAN, f64::INFINITY, -1.])?, "[ 0.5000,     nan,     inf, -1.0000]");
    assert_eq!(floats(&[f64::NAN, f64::INFINITY])?, "[nan, inf]");
    // Scientific: a ratio above 1000, a largest above 1e8, a smallest below 1e-4.
    assert_eq!(floats(&[1000., 1.])?, "[1000.,    1.]");
    assert_eq!(floats(&[1001., 1.])?, "[1.0010e+03, 1.0000e+00]");
    assert_eq!(floats(&[1e8, 1e8])?, "[100000000., 100000000.]");
    assert_eq!(floats(&[1.5e8, 1e8])?, "[1.5000e+08, 1.0000e+08]");
    assert_eq!(floats(&[1e-4, 2e-4])?, "[0.0001, 0.0002]");
    assert_eq!(floats(&[9.9e-5, 2e-4])?, "[9.9000e-05, 2.0000e-04]");
    assert_eq!(floats(&[1e-6, 1.0, f64::NAN, f64::INFINITY])?, "[1.0000e-06, 1.0000e+00,        nan,        inf]");
    assert_eq!(floats(&[0., 1e-10, -1e200])?, "[  0.0000e+00,   1.0000e-10, -1.0000e+200]");
    // Ties in the decimal go to the even digit.
    assert_eq!(floats(&[0.031_25, 0.093_75])?, "[0.0312, 0.0938]");
    assert_eq!(text(&Tensor::new(3.7f32, CPU)?), "3.7000");
    assert_eq!(text(&Tensor::new(7u8, CPU)?), "7");
    assert_eq!(text(&Tensor::new([0.1f32, 0.25], CPU)?.to_dtype(DType::F16)?), "[0.1000, 0.2500]");
    assert_eq!(text(&Tensor::new([0.1f32, 0.25], CPU)?.to_dtype(DType::BF16)?), "[0.1001, 0.2500]");
    assert_eq!(text(&Tensor::new([i64::MIN, 7], CPU)?), "[-9223372036854775808,                    7]");
    assert_eq!(text(&Tensor::new([1u8, 0], CPU)?.eq(1)?), "[1, 0]");
    Ok(())
}

#[test]
fn lines_axes_and_edges() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    display::set_print_options_default();
    let square = Tensor::new([[1f32, 2.5], [-3., 4.]], CPU)?;
    assert_eq!(square.to_string(), "[[ 1.0000,  2.5000],\n [-3.0000,  4.0000]]\nTensor[[2, 2], F32, cpu]");
    let cube = Tensor::arange(0u8, 8, CPU)?.reshape((2, 2, 2))?;
    assert_eq!(text(&cube), "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]");
    let four = Tensor::zeros((2, 1, 1, 2), DType::U8, CPU)?;
    assert_eq!(text(&four), "[[[[0, 0]]],\n\n\n [[[0, 0]]]]");
    // Sixteen elements of five columns fill a line of eighty.
    let row = vec!["42."; 16].join(", ");
    assert_eq!(text(&Tensor::full(42f32, 20, CPU)?), format!("[{row},\n 42., 42., 42., 42.]"));
    let wrapped = text(&Tensor::full(42f32, (1, 20), CPU)?);
    assert_eq!(wrapped.lines().map(|l| l.matches("42.").count()).collect::<Vec<_>>(), [15, 5]);
    assert!(wrapped.lines().nth(1).unwrap().starts_with("  42."));
    // A thousand elements are printed, one more is not.
    assert!(!text(&Tensor::zeros(1000, DType::U8, CPU)?).contains("..."));
    assert_eq!(text(&Tensor::arange(0u32, 1001, CPU)?), "[   0,    1,    2,  ...,  998,  999, 1000]");
    let matrix = Tensor::arange(0f32, 2800., CPU)?.reshape((7, 400))?;
    let want = "[[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.9700e+02, 3.9800e+02,\n  3.9900e+02],\n \
                [4.0000e+02, 4.0100e+02, 4.0200e+02,  ..., 7.9700e+02, 7.9800e+02,\n  7.9900e+02],\n \
                [8.0000e+02, 8.0100e+02, 8.0200e+02,  ..., 1.1970e+03, 1.1980e+03,\n  1.1990e+03],\n ...,\n \
                [1.6000e+03, 1.6010e+03, 1.6020e+03,  ..., 1.9970e+03, 1.9980e+03,\n  1.9990e+03],\n \
                [2.0000e+03, 2.0010e+03, 2.0020e+03,  ..., 2.3970e+03, 2.3980e+03,\n  2.3990e+03],\n \
                [2.4000e+03, 2.4010e+03, 2.4020e+03,  ..., 2.7970e+03, 2.7980e+03,\n  2.7990e+03]]";
    assert_eq!(text(&matrix), want);
    // Short axes stay whole; hidden elements do not choose the notation.
    let narrow =
        Tensor::cat(&[Tensor::zeros((600, 2), DType::F32, CPU)?, Tensor::ones((600, 2), DType::F32, CPU)?], 0)?;
    let spike = narrow.slice_assign(&[600..601, 0..1], &Tensor::new([[1e9f32]], CPU)?)?;
    assert_eq!(text(&spike), "[[0., 0.],\n [0., 0.],\n [0., 0.],\n ...,\n [1., 1.],\n [1., 1.],\n [1., 1.]]");
    assert_eq!(text(&Tensor::zeros((0, 2), DType::F32, CPU)?), "[]");
    assert_eq!(text(&square.t()?), "[[ 1.0000, -3.0000],\n [ 2.5000,  4.0000]]");
    Ok(())
}

#[test]
fn options_change_what_is_printed() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let x = Tensor::new([0.123_456f64, 10.], CPU)?;
    display::set_print_options_short();
    assert_eq!(text(&x), "[ 0.12, 10.00]");
    assert_eq!(text(&Tensor::arange(0u32, 1001, CPU)?), "[   0,    1,  ...,  999, 1000]");
    display::set_print_options_full();
    assert_eq!(text(&Tensor::zeros(2000, DType::U8, CPU)?).matches('0').count(), 2000);
    display::set_print_options_default();
    display::set_sci_mode(Some(true));
    assert_eq!(text(&x), "[1.2346e-01, 1.0000e+01]");
    display::set_sci_mode(Some(false));
    assert_eq!(text(&(&x * 1e-6)?), "[0.0000, 0.0000]");
    display::set_print_options_default();
    display::set_precision(1);
    display::set_line_width(10);
    assert_eq!(text(&x), "[ 0.1,\n 10.0]");
    display::set_threshold(3);
    display::set_edge_items(1);
    display::set_line_width(80);
    assert_eq!(text(&Tensor::new([1u8, 2, 3, 4], CPU)?), "[1,  ..., 4]");
    display::set_print_options(display::PrintOptions { edge_items: 0, ..display::print_options() });
    assert_eq!(text(&Tensor::new([1u8, 2, 3, 4], CPU)?), "[...]");
    display::set_print_options_default();
    assert_eq!(display::print_options(), display::PrintOptions::default());
    Ok(())
}
