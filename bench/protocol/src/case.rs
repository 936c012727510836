//! A case: what is to be computed, on what, and by what measure results count as equal. A participant sees nothing else, so
//! that shapes stand in one place, the driver's table.

use serde::{Deserialize, Serialize};

/// One thing to compute, and what the driver needs to judge it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The group that it belongs to: `matmul`, `rows`.
    pub group: String,
    /// Its name inside the group.
    pub name: String,
    /// What is computed.
    pub op: Op,
    /// The type of the floating-point operands and of the result.
    pub dtype: Element,
    /// The operands, in the order that `op` names.
    pub inputs: Vec<Input>,
    /// Floating-point operations (a multiplication and an addition are two).
    pub flops: f64,
    /// Bytes that must come from memory and go to it: each operand and the result once.
    pub bytes: f64,
    /// The largest difference of an element, in units of the expected result's root mean square; 0 where elements must be
    /// equal.
    pub tolerance: f64,
    /// What runs are measured in.
    pub unit: Unit,
}

/// What is measured, and how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Nanoseconds, of so many tokens: shown as tokens a second.
    Tokens(usize),
    /// Bytes of memory.
    Bytes,
}

/// A number type that operands have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Unsigned 32-bit integers: ids.
    U32,
}

impl Element {
    /// Bytes of one element.
    pub fn bytes(self) -> f64 {
        match self {
            Element::F32 | Element::U32 => 4.,
            Element::F16 | Element::Bf16 => 2.,
        }
    }
}

/// An operand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// What it is: `x`, `kernel`.
    pub name: String,
    /// Its shape.
    pub dims: Vec<usize>,
    /// Its values.
    pub fill: Fill,
}

impl Input {
    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }
}

/// How the driver fills an operand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fill {
    /// Uniform in [-scale, scale); half precision is rounded by the participant, to the nearest.
    Uniform {
        /// The bound.
        scale: f64,
    },
    /// The constant 1.
    Ones,
    /// Uniform ids in 0..below, u32.
    Ids {
        /// One more than the largest.
        below: u32,
    },
    /// These ids, u32.
    Listed {
        /// As many as there are elements.
        ids: Vec<u32>,
    },
    /// Each of 0..n once in a random order, as floats divided by n: no two are equal.
    Shuffled,
}

/// What is computed, and of which operands. Axes count from 0; tensors are row-major and contiguous.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are the operations' own parameters, under their usual names")]
pub enum Op {
    /// x [..., m, k] times y [..., k, n].
    Matmul,
    /// gelu(x * a + b) * c, all of one shape but the numbers a and b; gelu by its tanh form.
    GeluAffineMul { a: f64, b: f64 },
    /// x, along the last axis.
    Softmax,
    /// x, weight, bias, along the last axis.
    LayerNorm { eps: f64 },
    /// x, weight, along the last axis.
    RmsNorm { eps: f64 },
    /// x, along one axis.
    Sum { axis: usize },
    /// The positions of the largest elements of x along one axis.
    Argmax { axis: usize },
    /// q, k, v [batch, positions, heads, width], scaled by 1 / sqrt(width), to [batch, positions, heads, width].
    Attention { heads: usize, width: usize, causal: bool },
    /// x [batch, channels, height, width], kernel [out channels, channels / groups, rows, columns].
    Conv2d { stride: usize, padding: usize, groups: usize },
    /// x [batch, channels, length], kernel [out channels, channels, taps].
    Conv1d { stride: usize, padding: usize },
    /// x [batch, channels, height, width], kernel [channels, out channels, rows, columns].
    ConvTranspose2d { stride: usize, padding: usize, output_padding: usize },
    /// x [m, n] as a contiguous [n, m].
    Transpose,
    /// The operands joined along one axis.
    Cat { axis: usize },
    /// The elements of x that ids, a tensor of its rank, names along one axis.
    Gather { axis: usize },
    /// The rows of x that ids, a vector, names.
    IndexSelect,
    /// x, ids, y: the rows of y added to those rows of x that ids names; x stays as it was.
    IndexAdd,
    /// x, ascending along the last axis.
    Sort,
    /// x + y, read back.
    Add,
    /// x, factor, term: x becomes x * factor + term, `length` operations in all, and is read back.
    Chain { length: usize },
    /// Loss and gradients, one after the other: x [batch, 1, 28, 28], labels; kernels and biases of two convolutions (3 x 3,
    /// padding 1), each with relu and 2 x 2 max pooling; matrices and biases of two linear layers with relu between;
    /// cross entropy.
    TrainCnn,
    /// Loss and gradients, one after the other: x [batch, positions, width]; for each layer two gains of RMS norms, and the
    /// matrices qkv, out, up, down, in the order gain, qkv, out, gain, up, down. Causal attention, gelu by its tanh form,
    /// residuals; the loss is the mean square of the last layer's output.
    TrainDecoder { layers: usize, heads: usize },
    /// The logits of the job's model after the prompt, ids.
    LlmPrefill,
    /// So many tokens of the job's model after the first one that follows the prompt, ids; each is the likeliest. The result
    /// is the first few of them.
    LlmDecode { tokens: usize },
    /// A process that is started, loads the job's model and gives the token after the prompt, ids: how long that takes, or how
    /// much memory. The result is the token.
    LlmStart,
}
