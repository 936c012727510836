//! The feed-forward part of a layer.

use super::{FusedLinear, Linear};
use crate::config::MlpKind;
use tallow::{Error, Result, Tensor};

/// down(act(gate(x)) * up(x)), or down(act(up(x))).
pub struct Mlp {
    kind: MlpKind,
    up: FusedLinear,
    down: Linear,
}

impl Mlp {
    /// `up` gives gate and up (gated) or up alone (plain).
    pub fn new(kind: MlpKind, up: FusedLinear, down: Linear) -> Self {
        Self { kind, up, down }
    }

    /// [..., hidden] -> [..., hidden]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let projected = self.up.forward(x)?;
        let inner = match (self.kind, projected.as_slice()) {
            (MlpKind::Gated(act), [gate, up]) => act.apply(gate)?.mul(up)?,
            (MlpKind::Plain(act), [up]) => act.apply(up)?,
            _ => return Err(Error::msg("the feed-forward projections do not fit its kind")),
        };
        self.down.forward(&inner)
    }
}
