//! Products against f64, on every instruction set: sizes around each edge, layouts, half types, values that are not finite.

use half::{bf16, f16};

use super::{Cut, Element, FEW, Few, Product, Stored, Strip};
use crate::{Isa, Pool};

/// A stream of numbers in [-1, 1), by Marsaglia's xorshift.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Where an element lies, in a store of `len` elements.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Rows one after the other.
    Rows,
    /// Columns one after the other.
    Columns,
    /// Every third element, rows with a gap.
    Sparse,
}

impl Order {
    const ALL: [Order; 3] = [Order::Rows, Order::Columns, Order::Sparse];

    fn strides(self, rows: usize, cols: usize) -> (usize, usize) {
        match self {
            Order::Rows => (cols, 1),
            Order::Columns => (1, rows),
            Order::Sparse => (3 * cols + 5, 3),
        }
    }
}

/// A matrix as it is stored, and its values.
struct Matrix {
    bytes: Vec<u8>,
    values: Vec<f64>,
    strides: (usize, usize),
    cols: usize,
    stored: Stored,
}

fn matrix(noise: &mut Noise, rows: usize, cols: usize, order: Order, stored: Stored, wide: bool) -> Matrix {
    let strides = order.strides(rows, cols);
    let size = if wide { 8 } else { stored.size::<f32>() };
    let mut bytes = vec![0xff; (rows * strides.0 + cols * strides.1 + 1) * size];
    let mut values = Vec::with_capacity(rows * cols);
    for i in 0..rows {
        for j in 0..cols {
            let x = noise.next();
            let at = (i * strides.0 + j * strides.1) * size;
            let mut put = |of: &[u8]| bytes[at..at + size].copy_from_slice(of);
            values.push(match stored {
                _ if wide => {
                    put(&f64::from(x).to_ne_bytes());
                    f64::from(x)
                }
                Stored::Own => {
                    put(&x.to_ne_bytes());
                    f64::from(x)
                }
                Stored::F16 => {
                    put(&f16::from_f32(x).to_bits().to_ne_bytes());
                    f16::from_f32(x).to_f64()
                }
                Stored::BF16 => {
                    put(&bf16::from_f32(x).to_bits().to_ne_bytes());
                    bf16::from_f32(x).to_f64()
                }
            });
        }
    }
    Matrix { bytes, values, strides, cols, stored }
}

/// An address that threads share.
struct Shared<T>(T);
// SAFETY: tiles are written apart from one another.
unsafe impl<T> Sync for Shared<T> {}
impl<T: Copy> Shared<T> {
    fn get(&self) -> T {
        self.0
    }
}

/// The product by tiles; rows of the output are `stride` apart, with 7 between them.
fn product<T: Element>(isa: Isa, threads: usize, alone: bool, a: &Matrix, b: &Matrix, m: usize) -> Vec<T> {
    let kernel = T::kernel(isa);
    let (k, n) = (a.cols, b.cols);
    let cut = Cut::new(kernel, (m, n, k), 1, threads, alone);
    let strip = |of: &Matrix, strip: Strip, along: usize, across: usize, to: *mut T| {
        let size = of.stored.size::<T>();
        let at = of.bytes.as_ptr().wrapping_add((strip.at * across + strip.from * along) * size);
        // SAFETY: inside the matrix; `Product` gives room.
        unsafe {
            kernel.pack(of.stored, strip.depth, strip.width, strip.step, at, along as isize, across as isize, to);
        }
        Ok(())
    };
    let left = |s: Strip, to: *mut T| strip(a, s, a.strides.1, a.strides.0, to);
    let right = |s: Strip, to: *mut T| strip(b, s, b.strides.0, b.strides.1, to);
    let stride = n + 7;
    let mut out = vec![T::default(); m * stride];
    let to = Shared(out.as_mut_ptr());
    let run = |product: &Product<'_, T>| {
        Pool::new(threads).run(cut.tiles(), &|number| {
            let tile = cut.tile(number);
            // SAFETY: tiles lie apart in the output.
            unsafe { product.products(&tile, 0, to.get().add(tile.i * stride + tile.j), stride) }.unwrap();
        });
        Ok(())
    };
    if alone {
        run(&Product::alone(kernel, cut, &left, &right)).unwrap();
    } else {
        Product::shared(kernel, cut, &left, &right, run).unwrap();
    }
    (0..m * n).map(|at| out[at / n * stride + at % n]).collect()
}

/// Root of the mean square error over that of the values.
fn error(got: &[f64], a: &Matrix, b: &Matrix, m: usize) -> f64 {
    let (k, n) = (a.cols, b.cols);
    let (mut off, mut all) = (0.0, 0.0);
    for (at, got) in got.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let want: f64 = (0..k).map(|l| a.values[i * k + l] * b.values[l * n + j]).sum();
        off += (got - want).powi(2);
        all += want * want;
    }
    assert_eq!(got.len(), m * n);
    if all == 0.0 { off } else { (off / all).sqrt() }
}

#[test]
fn products_of_every_edge_layout_and_set() {
    let mut noise = Noise(77);
    let sizes = [
        (1, 1, 1),
        (2, 3, 5),
        (13, 7, 15),
        (14, 16, 16),
        (15, 17, 33),
        (6, 4, 31),
        (7, 255, 32),
        (29, 256, 47),
        (8, 257, 65),
        (57, 31, 97),
        (113, 64, 257),
        (131, 523, 259),
    ];
    for isa in Isa::supported() {
        for (m, k, n) in sizes {
            for (case, order) in Order::ALL.into_iter().enumerate() {
                let other = Order::ALL[(case + m) % 3];
                let a = matrix(&mut noise, m, k, order, Stored::Own, false);
                let b = matrix(&mut noise, k, n, other, Stored::Own, false);
                let got: Vec<f32> = product(isa, 2, false, &a, &b, m);
                let wide: Vec<f64> = got.iter().map(|&x| f64::from(x)).collect();
                let what = format!("{isa:?} {m} x {k} x {n} {order:?} {other:?}");
                assert!(error(&wide, &a, &b, m) < 1e-6, "{what}: {}", error(&wide, &a, &b, m));
                // The same bits by one thread, by three, and by tiles that pack for themselves.
                for (threads, alone) in [(1, false), (3, false), (2, true)] {
                    assert!(got == product::<f32>(isa, threads, alone, &a, &b, m), "{what} {threads} {alone}");
                }
                let a = matrix(&mut noise, m, k, order, Stored::Own, true);
                let b = matrix(&mut noise, k, n, other, Stored::Own, true);
                let got: Vec<f64> = product(isa, 2, m % 2 == 0, &a, &b, m);
                assert!(error(&got, &a, &b, m) < 1e-14, "{what} f64: {}", error(&got, &a, &b, m));
            }
        }
    }
}

#[test]
fn half_types_are_converted_exactly() {
    let mut noise = Noise(78);
    for isa in Isa::supported() {
        for (m, k, n) in [(3, 5, 7), (17, 33, 35), (30, 260, 64)] {
            for order in Order::ALL {
                for (left, right) in
                    [(Stored::F16, Stored::F16), (Stored::BF16, Stored::BF16), (Stored::Own, Stored::BF16)]
                {
                    let a = matrix(&mut noise, m, k, order, left, false);
                    let b = matrix(&mut noise, k, n, order, right, false);
                    let got: Vec<f64> = product::<f32>(isa, 2, false, &a, &b, m).into_iter().map(f64::from).collect();
                    assert!(error(&got, &a, &b, m) < 1e-6, "{isa:?} {m} x {k} x {n} {order:?} {left:?} {right:?}");
                }
            }
        }
    }
}

#[test]
fn values_that_are_not_finite_reach_their_row_and_column_only() {
    let mut noise = Noise(79);
    let (m, k, n) = (31, 19, 45);
    for isa in Isa::supported() {
        for bad in [f32::NAN, f32::INFINITY] {
            for (i, l, j) in [(30, 18, 44), (13, 0, 31), (0, 7, 0), (14, 18, 32)] {
                let mut a = matrix(&mut noise, m, k, Order::Rows, Stored::Own, false);
                let b = matrix(&mut noise, k, n, Order::Columns, Stored::Own, false);
                a.bytes[(i * k + l) * 4..][..4].copy_from_slice(&bad.to_ne_bytes());
                let got: Vec<f32> = product(isa, 1, false, &a, &b, m);
                for (at, x) in got.iter().enumerate() {
                    assert_eq!(x.is_finite(), at / n != i, "{isa:?} left {bad} {i} {l}: {at} is {x}");
                }
                let a = matrix(&mut noise, m, k, Order::Columns, Stored::Own, false);
                let mut b = matrix(&mut noise, k, n, Order::Rows, Stored::Own, false);
                b.bytes[(l * n + j) * 4..][..4].copy_from_slice(&bad.to_ne_bytes());
                let got: Vec<f32> = product(isa, 1, false, &a, &b, m);
                for (at, x) in got.iter().enumerate() {
                    assert_eq!(x.is_finite(), at % n != j, "{isa:?} right {bad} {l} {j}: {at} is {x}");
                }
            }
        }
    }
}

#[test]
fn a_product_too_large_to_share_packs_tile_by_tile() {
    // Whole panels of this depth are more than is kept.
    let k = 3_200_000;
    let mut noise = Noise(80);
    let a = matrix(&mut noise, 1, k, Order::Rows, Stored::F16, false);
    let b = matrix(&mut noise, k, 1, Order::Columns, Stored::F16, false);
    let got = f64::from(product::<f32>(Isa::best(), 2, false, &a, &b, 1)[0]);
    let want: f64 = a.values.iter().zip(&b.values).map(|(a, b)| a * b).sum();
    assert!((got - want).abs() < 1.0, "{got} {want}");
}

#[test]
fn a_few_rows_by_columns_and_by_rows() {
    let mut noise = Noise(81);
    for isa in Isa::supported() {
        let kernel = <f32 as Element>::kernel(isa);
        for m in 1..=FEW {
            for (k, n) in [(1, 1), (3, 5), (15, 16), (16, 17), (17, 33), (33, 7), (64, 100), (67, 130), (259, 31)] {
                for order in [Order::Columns, Order::Rows] {
                    for stored in [Stored::Own, Stored::F16, Stored::BF16] {
                        let a = matrix(&mut noise, m, k, Order::Rows, Stored::Own, false);
                        let x: Vec<f32> = a.values.iter().map(|&x| x as f32).collect();
                        let b = matrix(&mut noise, k, n, order, stored, false);
                        let by_columns = matches!(order, Order::Columns);
                        let stride = n + 3;
                        let run = |cols: std::ops::Range<usize>, out: &mut [f32]| {
                            let across = if by_columns { k } else { 1 };
                            let few = Few {
                                depth: k,
                                cols: cols.len(),
                                left: x.as_ptr(),
                                row: k as isize,
                                along: 1,
                                right: b.bytes.as_ptr().wrapping_add(cols.start * across * stored.size::<f32>()),
                                step: if by_columns { k } else { n } as isize,
                                out: out.as_mut_ptr().wrapping_add(cols.start),
                                stride,
                            };
                            // SAFETY: inside the matrices and the output.
                            unsafe { kernel.few(stored, m, by_columns, few) };
                        };
                        let (mut whole, mut parts) = (vec![7.0; m * stride], vec![7.0; m * stride]);
                        run(0..n, &mut whole);
                        let half = n / 3;
                        run(0..half, &mut parts);
                        run(half..n, &mut parts);
                        let what = format!("{isa:?} {m} x {k} x {n} {order:?} {stored:?}");
                        assert!(whole == parts, "{what}");
                        assert!(
                            (0..m).all(|i| whole[i * stride + n..(i + 1) * stride].iter().all(|&x| x == 7.0)),
                            "{what}"
                        );
                        let got: Vec<f64> = (0..m * n).map(|at| f64::from(whole[at / n * stride + at % n])).collect();
                        assert!(error(&got, &a, &b, m) < 1e-6, "{what}: {}", error(&got, &a, &b, m));
                    }
                }
            }
        }
    }
}
