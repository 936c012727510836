//! What the tests share: a generator of numbers, a way to wait, and `T`: a tensor that carries beside its node what it
//! should hold, computed eagerly in f64 by loops that know nothing of views, plans or fusion.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tallow_graph::{
    BinaryOp, CompareOp, DType, Edge, Element, Engine, Node, Options, Result, Scalar, Shape, UnaryOp, View,
    kernel::{Activations, RowOp},
    ops,
    reference::Reference,
};

/// Waits for a future of the reference backend, which is always ready or makes progress when asked.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

/// SplitMix64 (Steele et al., 2014).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// In -1..1, rounded to f32 so that every dtype from there on holds it.
    pub fn unit(&mut self) -> f64 {
        f64::from(((self.next() >> 40) as f32 / (1u32 << 24) as f32) * 2.0 - 1.0)
    }
}

/// Options of the tests: nothing from the environment.
pub fn options() -> Options {
    Options { fuse: true, debug: 0, decompose: false, ..Options::default() }
}

/// An engine on a reference backend, and the backend.
pub fn engine(options: Options) -> (Arc<Engine>, Arc<Reference>) {
    let backend = Arc::new(Reference::default());
    (Engine::new(backend.clone(), options), backend)
}

/// Bytes of f64 values as elements of a dtype.
pub fn bytes_of(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut out = Vec::new();
    for &v in values {
        match dtype {
            DType::U8 => u8::from_f64(v).put(&mut out),
            DType::I8 => i8::from_f64(v).put(&mut out),
            DType::U16 => u16::from_f64(v).put(&mut out),
            DType::I16 => i16::from_f64(v).put(&mut out),
            DType::U32 => u32::from_f64(v).put(&mut out),
            DType::I32 => i32::from_f64(v).put(&mut out),
            DType::U64 => u64::from_f64(v).put(&mut out),
            DType::I64 => i64::from_f64(v).put(&mut out),
            DType::F16 => half::f16::from_f64(v).put(&mut out),
            DType::BF16 => half::bf16::from_f64(v).put(&mut out),
            DType::F64 => v.put(&mut out),
            _ => (v as f32).put(&mut out),
        }
    }
    out
}

/// Elements of a dtype as f64.
pub fn values_of(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let one = |b: &[u8]| match dtype {
        DType::U8 => u8::take(b).to_f64(),
        DType::I8 => i8::take(b).to_f64(),
        DType::U16 => u16::take(b).to_f64(),
        DType::I16 => i16::take(b).to_f64(),
        DType::U32 => u32::take(b).to_f64(),
        DType::I32 => i32::take(b).to_f64(),
        DType::U64 => u64::take(b).to_f64(),
        DType::I64 => i64::take(b).to_f64(),
        DType::F16 => half::f16::take(b).to_f64(),
        DType::BF16 => half::bf16::take(b).to_f64(),
        DType::F64 => f64::take(b),
        _ => f32::take(b).into(),
    };
    bytes.chunks_exact(dtype.size_in_bytes()).map(one).collect()
}

/// The whole value of a node.
pub fn read(node: &Arc<Node>) -> Vec<f64> {
    let bytes = block_on(node.engine().read(node)).unwrap();
    values_of(node.dtype(), &bytes)
}

/// All indices of a shape, in row-major order.
pub fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &dim in dims {
        all = all.into_iter().flat_map(|head| (0..dim).map(move |i| [head.clone(), vec![i]].concat())).collect();
    }
    all
}

fn place(index: &[usize], dims: &[usize]) -> usize {
    index.iter().zip(dims).fold(0, |at, (&i, &d)| at * d + i)
}

/// A tensor and what it should hold.
#[derive(Clone)]
pub struct T {
    pub edge: Edge,
    pub want: Vec<f64>,
}

impl T {
    /// A leaf.
    pub fn new(engine: &Arc<Engine>, dtype: DType, dims: &[usize], want: Vec<f64>) -> T {
        let want = values_of(dtype, &bytes_of(dtype, &want));
        let node = engine.upload(dtype, Shape::new(dims), &bytes_of(dtype, &want)).unwrap();
        T { edge: node.whole(), want }
    }

    /// A leaf of numbers in -1..1.
    pub fn random(engine: &Arc<Engine>, dtype: DType, dims: &[usize], rng: &mut Rng) -> T {
        let want = (0..dims.iter().product()).map(|_| rng.unit()).collect();
        T::new(engine, dtype, dims, want)
    }

    pub fn of(node: Arc<Node>, want: Vec<f64>) -> T {
        assert_eq!(node.shape().elem_count(), want.len(), "{node:?}");
        T { edge: node.whole(), want }
    }

    pub fn dims(&self) -> Vec<usize> {
        self.edge.view.shape.to_vec()
    }

    pub fn rank(&self) -> usize {
        self.edge.view.shape.rank()
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.edge.node
    }

    /// The elements that the view shows.
    pub fn got(&self) -> Vec<f64> {
        let all = read(&self.edge.node);
        let view = &self.edge.view;
        let at = |i: &Vec<usize>| i.iter().zip(&view.strides).map(|(&i, &s)| i as isize * s).sum::<isize>();
        indices(&view.shape).iter().map(|i| all[(view.offset as isize + at(i)) as usize]).collect()
    }

    /// The largest difference, relative to the largest value.
    pub fn error(&self) -> f64 {
        error(&self.got(), &self.want)
    }

    /// Reads the value and compares.
    #[track_caller]
    pub fn check(&self, tolerance: f64) {
        let got = self.got();
        assert!(error(&got, &self.want) <= tolerance, "{:?}:\n got {got:?}\nwant {:?}", self.edge.node, self.want);
    }

    fn view(&self, view: View, want: Vec<f64>) -> T {
        T { edge: Edge { node: self.edge.node.clone(), view }, want }
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.want[place(index, &self.edge.view.shape)]
    }

    fn pick(&self, dims: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Vec<f64> {
        indices(dims).iter().map(|i| self.at(&from(i))).collect()
    }

    pub fn permute(&self, order: &[usize]) -> T {
        let dims: Vec<usize> = order.iter().map(|&a| self.dims()[a]).collect();
        let want = self.pick(&dims, |i| {
            let mut from = vec![0; i.len()];
            order.iter().zip(i).for_each(|(&a, &i)| from[a] = i);
            from
        });
        self.view(self.edge.view.permute(order), want)
    }

    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> T {
        let mut dims = self.dims();
        dims[axis] = len;
        let want = self.pick(&dims, |i| {
            let mut from = i.to_vec();
            from[axis] += start;
            from
        });
        self.view(self.edge.view.narrow(axis, start, len), want)
    }

    pub fn flip(&self, axis: usize) -> T {
        let dims = self.dims();
        let want = self.pick(&dims, |i| {
            let mut from = i.to_vec();
            from[axis] = dims[axis] - 1 - from[axis];
            from
        });
        self.view(self.edge.view.flip(axis), want)
    }

    pub fn unsqueeze(&self, axis: usize) -> T {
        self.view(self.edge.view.unsqueeze(axis), self.want.clone())
    }

    pub fn squeeze(&self, axis: usize) -> T {
        self.view(self.edge.view.squeeze(axis), self.want.clone())
    }

    pub fn broadcast(&self, dims: &[usize]) -> T {
        let want = self.stretched(dims);
        self.view(self.edge.view.broadcast_to(&Shape::new(dims)).unwrap(), want)
    }

    fn stretched(&self, dims: &[usize]) -> Vec<f64> {
        let own = self.dims();
        let lead = dims.len() - own.len();
        self.pick(dims, |i| i[lead..].iter().zip(&own).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect())
    }

    /// Another shape, by a copy where no view expresses it.
    pub fn reshape(&self, dims: &[usize]) -> T {
        match self.edge.view.reshape(&Shape::new(dims)) {
            Some(view) => self.view(view, self.want.clone()),
            None => {
                let copy = self.copy();
                copy.view(View::contiguous(Shape::new(dims)), self.want.clone())
            }
        }
    }

    pub fn copy(&self) -> T {
        T::of(ops::copy(self.edge.clone()).unwrap(), self.want.clone())
    }

    pub fn cast(&self, dtype: DType) -> T {
        let want = self.want.iter().map(|&v| values_of(dtype, &bytes_of(dtype, &[v]))[0]).collect();
        T::of(ops::cast(self.edge.clone(), dtype).unwrap(), want)
    }

    pub fn unary(&self, op: UnaryOp) -> T {
        let want = self.want.iter().map(|&x| unary(op, x)).collect();
        T::of(ops::unary(op, self.edge.clone()).unwrap(), want)
    }

    pub fn affine(&self, factor: f64, term: f64) -> T {
        let want = self.want.iter().map(|&x| x * factor + term).collect();
        T::of(ops::affine(self.edge.clone(), Scalar::F(factor), Scalar::F(term)).unwrap(), want)
    }

    pub fn binary(&self, op: BinaryOp, other: &T) -> T {
        let shape = self.edge.view.shape.broadcast(&other.edge.view.shape).unwrap();
        let (a, b) = (self.stretched(&shape), other.stretched(&shape));
        let want = a.iter().zip(&b).map(|(&x, &y)| binary(op, x, y)).collect();
        T::of(ops::binary(op, self.edge.clone(), other.edge.clone()).unwrap(), want)
    }

    pub fn scalar(&self, op: BinaryOp, y: f64) -> T {
        let want = self.want.iter().map(|&x| binary(op, x, y)).collect();
        T::of(ops::binary_scalar(op, self.edge.clone(), Scalar::F(y)).unwrap(), want)
    }

    pub fn add(&self, other: &T) -> T {
        self.binary(BinaryOp::Add, other)
    }

    pub fn mul(&self, other: &T) -> T {
        self.binary(BinaryOp::Mul, other)
    }

    pub fn less(&self, other: &T) -> T {
        let shape = self.edge.view.shape.broadcast(&other.edge.view.shape).unwrap();
        let (a, b) = (self.stretched(&shape), other.stretched(&shape));
        let want = a.iter().zip(&b).map(|(x, y)| f64::from(u8::from(x < y))).collect();
        T::of(ops::compare(CompareOp::Lt, self.edge.clone(), other.edge.clone()).unwrap(), want)
    }

    pub fn pick_where(&self, then: &T, otherwise: &T) -> T {
        let shape = self.edge.view.shape.broadcast(&then.edge.view.shape).unwrap();
        let shape = shape.broadcast(&otherwise.edge.view.shape).unwrap();
        let (c, a, b) = (self.stretched(&shape), then.stretched(&shape), otherwise.stretched(&shape));
        let want = c.iter().zip(a.iter().zip(&b)).map(|(&c, (&a, &b))| if c != 0.0 { a } else { b }).collect();
        T::of(ops::where_cond(self.edge.clone(), then.edge.clone(), otherwise.edge.clone()).unwrap(), want)
    }

    pub fn reduce(&self, op: RowOp, axes: u8) -> T {
        let dims = self.dims();
        let inside = |a: usize| axes & (1 << a) != 0;
        let outer: Vec<usize> = (0..dims.len()).filter(|&a| !inside(a)).map(|a| dims[a]).collect();
        let inner: Vec<usize> = (0..dims.len()).filter(|&a| inside(a)).map(|a| dims[a]).collect();
        let want = indices(&outer)
            .iter()
            .map(|o| {
                let row: Vec<f64> = indices(&inner)
                    .iter()
                    .map(|i| {
                        let (mut o, mut i) = (o.iter(), i.iter());
                        let index: Vec<usize> = (0..dims.len())
                            .map(|a| if inside(a) { *i.next().unwrap() } else { *o.next().unwrap() })
                            .collect();
                        self.at(&index)
                    })
                    .collect();
                reduce(op, &row)
            })
            .collect();
        T::of(ops::reduce(op, self.edge.clone(), axes).unwrap(), want)
    }

    pub fn norm(&self, op: RowOp, eps: f64) -> T {
        let width = *self.dims().last().unwrap();
        let want = self.want.chunks(width.max(1)).flat_map(|row| normalise(op, row, eps)).collect();
        let x = self.edge.clone();
        let node = match op {
            RowOp::RmsNorm => ops::rms_norm(x, eps),
            RowOp::LayerNorm => ops::layer_norm(x, eps),
            _ => ops::softmax(x),
        };
        T::of(node.unwrap(), want)
    }

    pub fn matmul(&self, other: &T) -> T {
        let (sa, sb) = (self.dims(), other.dims());
        let lead = |s: &[usize]| Shape::new(&s[..s.len() - 2]);
        let batch = lead(&sa).broadcast(&lead(&sb)).unwrap();
        let [m, k] = sa[sa.len() - 2..] else { panic!() };
        let n = sb[sb.len() - 1];
        let wide = |tail: [usize; 2]| [batch.dims(), &tail].concat();
        let (a, b) = (self.stretched(&wide([m, k])), other.stretched(&wide([k, n])));
        let mut want = Vec::new();
        for at in 0..batch.elem_count() {
            for i in 0..m {
                for j in 0..n {
                    want.push((0..k).map(|d| a[at * m * k + i * k + d] * b[at * k * n + d * n + j]).sum());
                }
            }
        }
        T::of(ops::matmul(self.edge.clone(), other.edge.clone()).unwrap(), want)
    }

    /// x times the transpose of `weight`, with all leading axes of x.
    pub fn linear(&self, weight: &T) -> T {
        let dims = self.dims();
        let (k, n) = (dims[dims.len() - 1], weight.dims()[0]);
        let rows = self.want.len() / k;
        let mut want = Vec::new();
        for i in 0..rows {
            for j in 0..n {
                want.push((0..k).map(|d| self.want[i * k + d] * weight.want[j * k + d]).sum());
            }
        }
        let node = ops::linear(self.edge.clone(), weight.edge.clone(), Activations::F32).unwrap();
        let out: Vec<usize> = [&dims[..dims.len() - 1], &[n]].concat();
        T::of(node, want).reshape(&out)
    }

    pub fn gather(&self, ids: &T, axis: usize) -> T {
        let dims = self.dims();
        let mut out = dims.clone();
        out[axis] = ids.want.len();
        let want = self.pick(&out, |i| {
            let mut from = i.to_vec();
            from[axis] = ids.want[i[axis]] as usize;
            from
        });
        T::of(ops::gather(self.edge.clone(), ids.edge.clone(), axis).unwrap(), want).reshape(&out)
    }

    /// A new version whose part (start, length on each axis) holds `value`.
    pub fn write(&self, window: &[(usize, usize)], value: &T) -> T {
        let dims = self.node().shape().to_vec();
        assert!(self.edge.view.is_whole(self.want.len()), "a write's base is a whole value");
        let mut view = View::contiguous(Shape::new(&dims));
        let mut want = self.want.clone();
        let part: Vec<usize> = window.iter().map(|w| w.1).collect();
        for (axis, &(start, len)) in window.iter().enumerate() {
            view = view.narrow(axis, start, len);
        }
        let values = value.stretched(&part);
        for (index, v) in indices(&part).iter().zip(values) {
            let at: Vec<usize> = index.iter().zip(window).map(|(i, w)| i + w.0).collect();
            want[place(&at, &dims)] = v;
        }
        T::of(ops::write(self.node(), view, value.edge.clone()).unwrap(), want)
    }
}

/// The largest difference, relative to the largest wanted value (at least 1).
pub fn error(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    let one = |(g, w): (&f64, &f64)| if g == w || (g.is_nan() && w.is_nan()) { 0.0 } else { (g - w).abs() / scale };
    got.iter().zip(want).map(one).fold(0.0, |m: f64, e| if e.is_nan() { f64::INFINITY } else { m.max(e) })
}

pub fn unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqr => x * x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Silu => x / (1.0 + (-x).exp()),
        UnaryOp::Gelu => x * 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh()),
        other => panic!("the model has no {other:?}"),
    }
}

pub fn binary(op: BinaryOp, x: f64, y: f64) -> f64 {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Maximum => x.max(y),
        BinaryOp::Minimum => x.min(y),
        BinaryOp::Pow => x.powf(y),
        BinaryOp::Rem => x % y,
        other => panic!("the model has no {other:?}"),
    }
}

pub fn reduce(op: RowOp, row: &[f64]) -> f64 {
    let better = |f: fn(&f64, &f64) -> bool| {
        (1..row.len()).fold(0, |best, i| if f(&row[i], &row[best]) { i } else { best }) as f64
    };
    match op {
        RowOp::Sum => row.iter().sum(),
        RowOp::Prod => row.iter().product(),
        RowOp::Mean => row.iter().sum::<f64>() / row.len() as f64,
        RowOp::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        RowOp::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
        RowOp::ArgMax => better(|a, b| a > b),
        RowOp::ArgMin => better(|a, b| a < b),
        _ => panic!("{op:?} gives a row"),
    }
}

pub fn normalise(op: RowOp, row: &[f64], eps: f64) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let moment = |m: f64| row.iter().map(|x| (x - m).powi(2)).sum::<f64>() / n;
    match op {
        RowOp::RmsNorm => row.iter().map(|x| x / (moment(0.0) + eps).sqrt()).collect(),
        RowOp::LayerNorm => row.iter().map(|x| (x - mean) / (moment(mean) + eps).sqrt()).collect(),
        _ => {
            let total: f64 = row.iter().map(|x| x.exp()).sum();
            row.iter().map(|x| x.exp() / total).collect()
        }
    }
}

/// Realises all at once.
pub fn realize(tensors: &[&T]) -> Result<()> {
    let nodes: Vec<Arc<Node>> = tensors.iter().map(|t| t.node().clone()).collect();
    let engine = nodes[0].engine().clone();
    block_on(engine.realize(&nodes))
}
