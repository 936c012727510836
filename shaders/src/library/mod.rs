//! The WGSL library: from a kernel's structure to WGSL source, and from a run's words and scalars to the uniform block
//! that the source reads.
//!
//! Bindings of every shader, all in group 0: the step's inputs (read-only storage), its outputs (storage), scratch (if
//! any), the fault word (if any: `array<atomic<u32>, 3>` of {code, step, index}), and last the uniform block, with a dynamic
//! offset. A shader with a fault word takes the step's number from the last word that [`params`] wrote, which is 0 until
//! the host puts the number there.
//!
//! [`split`] cuts a step whose buffers are larger than a binding may be into pieces that are run one after the other.
//!
//! `map`, `row`, `contract`, `conv`, `attention`, `gather`, `pick`, `scatter`, `sort`, `scan`, `random` and `custom` each
//! hold one kind of kernel; the templates they fill stand in `shaders/wgsl`.

mod attention;
mod axes;
mod code;
mod contract;
mod conv;
mod coop;
mod custom;
mod expr;
mod gather;
mod link;
mod loaders;
mod map;
mod pick;
mod preprocess;
mod random;
mod row;
mod scan;
mod scatter;
mod sort;
mod split;
mod start;
mod tiles;
mod vendor;

pub use coop::Coop;
pub use custom::Checked;
pub use split::{Cut, Piece, Room, Window, split, too_large};
pub use vendor::Vendor;

use code::address;
use smallvec::{SmallVec, smallvec};
use tallow_graph::{Implementation, Kernel, Result, Scalar};

/// What the shaders may use, and how big they may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// f16 arithmetic in shaders (tier T1).
    pub f16: bool,
    /// Smallest and largest subgroup (tier T2).
    pub subgroups: Option<(u32, u32)>,
    /// Dot products of packed 8-bit integers (tier T3).
    pub packed_dot: bool,
    /// Cooperative matrices (tier T4), which need subgroups too.
    pub coop: Coop,
    /// Whether source goes through naga, which takes no `enable subgroups;` line.
    pub naga: bool,
    /// Most invocations of a workgroup.
    pub max_workgroup_invocations: u32,
    /// Most bytes of workgroup memory.
    pub max_workgroup_storage: u32,
    /// Most storage buffers bound at once.
    pub max_storage_buffers: u32,
    /// Most workgroups along one axis of a dispatch.
    pub max_dispatch: u32,
    /// A CPU that does a GPU's work: barriers are dear there.
    pub software: bool,
    /// Who made it: what a usual GPU of theirs holds.
    pub vendor: Vendor,
}

/// Source and interface of one implementation of a kernel.
#[derive(Debug, Clone)]
pub struct Shader {
    /// For debuggers and messages.
    pub label: String,
    /// WGSL.
    pub source: String,
    /// Entry points, run in this order, each a dispatch of its own.
    pub entries: SmallVec<[&'static str; 2]>,
    /// Input buffers.
    pub inputs: usize,
    /// Output buffers.
    pub outputs: usize,
    /// Whether a scratch buffer follows the outputs.
    pub scratch: bool,
    /// Whether the fault word follows.
    pub fault: bool,
    /// Words of the uniform block, at most.
    pub param_words: usize,
}

/// Which words of a product hold the columns of its parts.
pub fn contract_sizes(kernel: &tallow_graph::kernel::ContractKernel) -> SmallVec<[usize; 2]> {
    contract::Words::of(kernel).parts.iter().map(|part| part.0).collect()
}

/// The ways to run a kernel on a target, cheapest for `words` first in cost, not in order; empty where it cannot.
/// Costs are in microseconds of an imagined GPU of 1 TB/s.
pub fn implementations(kernel: &Kernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    let (inputs, outputs, fault) = match kernel {
        Kernel::Map(k) => (map::inputs(k), k.parts.len(), 0),
        Kernel::Row(k) => (row::inputs(k), 1, 0),
        Kernel::Contract(k) => (contract::inputs(k), k.parts.len(), 0),
        Kernel::Conv(k) => (conv::inputs(k), 1, 0),
        Kernel::Attention(k) => (3 + usize::from(k.mask), 1, 0),
        Kernel::Gather(_) => (2, 1, 1),
        Kernel::Random(_) => (0, 1, 0),
        Kernel::Pick(_) => (2, 1, 1),
        // The last are scratch and fault word.
        Kernel::Scatter(_) => (2, 1, 2),
        Kernel::Sort(_) | Kernel::Scan(_) => (1, 1, 1),
        Kernel::Custom(k) => (k.inputs.len(), 1, 0),
    };
    if inputs + outputs + fault > target.max_storage_buffers as usize {
        return SmallVec::new();
    }
    let one = |supported: bool, bytes: u64| -> SmallVec<[Implementation; 2]> {
        if supported {
            smallvec![Implementation { id: 0, scratch: 0, cost: 1.0 + bytes as f32 * 1e-6 }]
        } else {
            SmallVec::new()
        }
    };
    let mut all = match kernel {
        Kernel::Map(k) => one(map::supported(k), map::work(k, words)),
        Kernel::Row(k) => row::implementations(k, words, target),
        Kernel::Contract(k) => contract::implementations(k, words, target),
        Kernel::Conv(k) => conv::implementations(k, words, target),
        Kernel::Attention(k) => attention::implementations(k, words, target),
        Kernel::Gather(k) => one(gather::supported(k), 0),
        Kernel::Random(k) => one(random::supported(k), 0),
        Kernel::Pick(k) => one(pick::supported(k), 0),
        Kernel::Scatter(k) => scatter::implementations(k, words, target),
        Kernel::Sort(k) => sort::implementations(k, words, target),
        Kernel::Scan(k) => scan::implementations(k, words, target),
        Kernel::Custom(k) => one(custom::supported(k), 0),
    };
    // Scratch memory is one binding more, where the kernel can do without.
    if matches!(kernel, Kernel::Contract(_) | Kernel::Attention(_)) {
        all.retain(|way| way.scratch == 0 || inputs + outputs < target.max_storage_buffers as usize);
    }
    all
}

/// The source of one implementation.
pub fn shader(kernel: &Kernel, implementation: u32, target: &Target) -> Result<Shader> {
    match kernel {
        Kernel::Map(k) => map::shader(k, target),
        Kernel::Row(k) => row::shader(k, implementation, target),
        Kernel::Contract(k) => contract::shader(k, implementation, target),
        Kernel::Conv(k) => conv::shader(k, implementation, target),
        Kernel::Attention(k) => attention::shader(k, implementation, target),
        Kernel::Gather(k) => gather::shader(k, target),
        Kernel::Random(k) => random::shader(k, target),
        Kernel::Pick(k) => pick::shader(k, target),
        Kernel::Scatter(k) => scatter::shader(k, implementation, target),
        Kernel::Sort(k) => sort::shader(k, target),
        Kernel::Scan(k) => scan::shader(k, implementation, target),
        Kernel::Custom(k) => custom::shader(k, target),
    }
}

/// Appends the uniform block of a run; fails where a size, offset or stride does not fit 32 bits.
pub fn params(kernel: &Kernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    match kernel {
        Kernel::Map(k) => map::params(k, words, scalars, out),
        Kernel::Row(k) => row::params(k, words, scalars, out),
        Kernel::Contract(k) => contract::params(k, words, scalars, out),
        Kernel::Conv(k) => conv::params(k, words, scalars, out),
        Kernel::Attention(k) => attention::params(k, words, scalars, out),
        Kernel::Gather(k) => gather::params(k, words, out),
        Kernel::Random(k) => random::params(k, words, scalars, out),
        Kernel::Pick(k) => pick::params(k, words, out),
        Kernel::Scatter(k) => scatter::params(k, words, out),
        Kernel::Sort(k) => sort::params(k, words, out),
        Kernel::Scan(k) => scan::params(k, words, out),
        Kernel::Custom(k) => custom::params(k, words, scalars, out),
    }
}

/// Workgroups of each entry; a zero means that there is nothing to do.
pub fn grids(kernel: &Kernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    match kernel {
        Kernel::Map(k) => map::grids(k, words, target),
        Kernel::Row(k) => row::grids(k, implementation, words, target),
        Kernel::Contract(k) => contract::grids(k, implementation, words, target),
        Kernel::Conv(k) => conv::grids(k, implementation, words, target),
        Kernel::Attention(k) => attention::grids(k, implementation, words, target),
        Kernel::Gather(k) => gather::grids(k, words, target),
        Kernel::Random(k) => random::grids(k, words, target),
        Kernel::Pick(k) => pick::grids(k, words, target),
        Kernel::Scatter(k) => scatter::grids(k, implementation, words, target),
        Kernel::Sort(k) => sort::grids(k, words, target),
        Kernel::Scan(k) => scan::grids(k, implementation, words, target),
        Kernel::Custom(k) => custom::grids(k, words, target),
    }
}

/// So many workgroups as a grid of at most `max_dispatch` along x: shaders number them y * (groups of x) + x, and leave
/// out those past the end.
fn spread(groups: u64, target: &Target) -> [u32; 3] {
    let most = u64::from(target.max_dispatch.max(1));
    if groups == 0 {
        return [0; 3];
    }
    let y = groups.div_ceil(most);
    let x = groups.div_ceil(y);
    // More than max_dispatch squared groups would be more elements than a u32 counts: `params` refused them.
    [x as u32, y.min(most) as u32, 1]
}

/// An entry point whose body sees `group`, the linear number of its workgroup, and `lid`, that of the invocation.
fn entry(name: &str, invocations: u32, more: &str, body: &str) -> String {
    format!(
        "@compute @workgroup_size({invocations})\nfn {name}(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) \
         nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32{more}) {{\n    let group = wid.y * nwg.x + wid.x;\n{body}}}\n"
    )
}
