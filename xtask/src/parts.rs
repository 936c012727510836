//! The parts of `cargo xtask test`, one file each: what a part is called, what it says of itself, and how it runs.

mod clippy;
mod conformance;
mod docs;
mod fmt;
mod shaders;
mod unit;
mod wasm;
pub mod web;

use crate::context::Context;
use crate::report::PartReport;

/// The crate that builds for wasm32 only.
const WEB_CRATE: &str = "tallow-web";
/// The browser's target.
pub const WASM: &str = "wasm32-unknown-unknown";

/// One part of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Formatting.
    Fmt,
    /// Lints.
    Clippy,
    /// Tests of each crate.
    Unit,
    /// The table of operations on every device.
    Conformance,
    /// Every WGSL variant.
    Shaders,
    /// Documentation.
    Docs,
    /// Other targets.
    Wasm,
    /// The page in a browser.
    Web,
}

impl Part {
    /// In the order in which they run: the quickest to fail first.
    pub const ALL: [Self; 8] =
        [Self::Fmt, Self::Clippy, Self::Unit, Self::Conformance, Self::Shaders, Self::Docs, Self::Wasm, Self::Web];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Conformance => "conformance",
            Self::Shaders => "shaders",
            Self::Docs => "docs",
            Self::Wasm => "wasm",
            Self::Web => "web",
        }
    }

    /// One line for the help text.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Fmt => "cargo fmt --check",
            Self::Clippy => "clippy on every target of every crate, warnings are errors",
            Self::Unit => "the crates' own tests",
            Self::Conformance => "tallow-tests: every operation on every device, golden fixtures, real weights",
            Self::Shaders => "every WGSL variant through naga, its SPIR-V, MSL and HLSL writers, and Tint",
            Self::Docs => "documentation examples, and rustdoc without warnings",
            Self::Wasm => "the browser crate for wasm32; the native crates checked for Windows and macOS",
            Self::Web => "the page, built by trunk, in headless Chromium with WebGPU and without",
        }
    }

    /// Runs the part.
    pub fn run(self, context: &Context) -> PartReport {
        let mut report = PartReport::begin(self.name());
        match self {
            Self::Fmt => fmt::run(context, &mut report),
            Self::Clippy => clippy::run(context, &mut report),
            Self::Unit => unit::run(context, &mut report),
            Self::Conformance => conformance::run(context, &mut report),
            Self::Shaders => shaders::run(context, &mut report),
            Self::Docs => docs::run(context, &mut report),
            Self::Wasm => wasm::run(context, &mut report),
            Self::Web => web::run(context, &mut report),
        }
        report.finish()
    }
}
