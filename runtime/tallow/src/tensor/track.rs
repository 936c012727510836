//! How a tensor knows its tape: see [`crate::autograd`]. A tensor has a tape of its own; where its cell was written with or
//! over something tracked since, the cell's tape, seen through the tensor's view, takes its place.

use super::{Cell, Tensor};
use crate::{
    Device, Result, View,
    autograd::{self, Input, Keep, TapeNode, TensorId},
};
use parking_lot::Mutex;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};
use tallow_graph::{Edge, Node};

/// A value as it is now.
pub(super) struct Version {
    pub node: Arc<Node>,
    /// The tape of the whole value, if it is tracked.
    pub tape: Option<Arc<TapeNode>>,
    /// Counts the writes that changed the tape. A tensor whose tape is older takes the value's.
    pub writes: u32,
}

/// Whether a tensor is tracked.
#[derive(Clone)]
pub(super) enum Track {
    /// No, unless something tracked was written into its cell.
    Plain,
    /// No, whatever is written.
    Detached,
    /// Yes, by this.
    Taped(Arc<TapeNode>),
}

impl Cell {
    pub(super) fn new(device: &Device, version: Version) -> Arc<Self> {
        Arc::new(Self { device: device.clone(), version: Mutex::new(version), number: OnceLock::new() })
    }
}

impl Tensor {
    /// A tensor for a value seen through a view, in a cell of its own.
    pub(crate) fn at(edge: Edge, device: &Device, tape: Option<Arc<TapeNode>>) -> Tensor {
        let Edge { node, view } = edge;
        let whole = view.is_whole(node.shape().elem_count()) && &view.shape == node.shape();
        let writes = tape.as_ref().map_or(0, |tape| tape.writes());
        let version = Version { node, tape: tape.clone().filter(|_| whole), writes };
        Tensor { cell: Cell::new(device, version), view, track: tape.map_or(Track::Plain, Track::Taped) }
    }

    /// This new tensor, tracked.
    pub(crate) fn on_tape(mut self, tape: Arc<TapeNode>) -> Tensor {
        {
            let mut version = self.cell.version.lock();
            let whole = self.view.is_whole(version.node.shape().elem_count()) && self.shape() == version.node.shape();
            version.tape = Some(tape.clone()).filter(|_| whole);
        }
        self.track = Track::Taped(tape);
        self
    }

    /// The value as it is now, and its tape unless recording is off: what an operation reads.
    pub(crate) fn input(&self) -> Input<'_> {
        let version = self.cell.version.lock();
        let tape = match &self.track {
            Track::Plain if version.writes == 0 => None,
            _ if !autograd::enabled() => None,
            _ => self.tape_of(&version),
        };
        let node = version.node.clone();
        drop(version);
        Input::new(self, node, tape)
    }

    /// The tape, whether recording is on or off.
    pub(crate) fn tape(&self) -> Option<Arc<TapeNode>> {
        match &self.track {
            Track::Detached => None,
            _ => self.tape_of(&self.cell.version.lock()),
        }
    }

    fn tape_of(&self, version: &Version) -> Option<Arc<TapeNode>> {
        match &self.track {
            Track::Detached => None,
            Track::Taped(tape) if tape.writes() == version.writes => Some(tape.clone()),
            Track::Plain if version.writes == 0 => None,
            _ => {
                let tape = version.tape.as_ref()?;
                let shape = version.node.shape();
                if self.view.is_whole(shape.elem_count()) && self.shape() == shape {
                    return Some(tape.clone());
                }
                let of = (shape.clone(), version.node.dtype(), self.device());
                Some(autograd::view_of("view", tape, of, self.view.clone(), version.writes))
            }
        }
    }

    /// Another view of the same value. `view` gives it from this tensor's view, and what it shows of a contiguous tensor of this
    /// shape from that one's.
    pub(crate) fn viewed(&self, name: &'static str, view: impl Fn(&View) -> View) -> Tensor {
        let track = match &self.track {
            Track::Plain => Track::Plain,
            Track::Taped(tape) if autograd::enabled() => {
                let of = (self.shape().clone(), tape.dtype(), self.device());
                let relative = view(&View::contiguous(self.shape().clone()));
                Track::Taped(autograd::view_of(name, tape, of, relative, tape.writes()))
            }
            Track::Taped(_) | Track::Detached => Track::Detached,
        };
        Tensor { cell: self.cell.clone(), view: view(&self.view), track }
    }

    /// The same value without its tape: no gradient goes through. It shows what is written later, as the tensor does.
    pub fn detach(&self) -> Tensor {
        Tensor { cell: self.cell.clone(), view: self.view.clone(), track: Track::Detached }
    }

    /// The tensor if it is a whole value, its elements in order; else a copy that is.
    pub(crate) fn whole(&self) -> Result<Tensor> {
        let elements = self.node().shape().elem_count();
        if self.view.is_whole(elements) { Ok(self.clone()) } else { self.force_contiguous() }
    }

    /// The elements as the result of an operation that has nothing to do: later writes into this tensor do not show in it, and
    /// it can be written itself. A whole value is shared until one of the two is written; a part of one is copied.
    pub(crate) fn fresh(&self, name: &'static str) -> Result<Tensor> {
        let x = self.input();
        let edge = x.edge();
        let node = &edge.node;
        let whole = edge.view.is_whole(node.shape().elem_count());
        // What is tracked can be written only if it has its value's shape.
        if !whole || (x.tape().is_some() && node.shape() != self.shape()) {
            return self.copy();
        }
        let y = Tensor::at(edge, self.device(), None);
        Ok(y.recorded(name, &[&x], &[Keep::NOTHING], |saved, grad| saved.each(|_| Ok(grad.clone()))))
    }

    /// This result of an operation on `of`: in a cell of its own, where it is a view of that tensor.
    pub(crate) fn apart_from(self, of: &Tensor, name: &'static str) -> Result<Tensor> {
        if Arc::ptr_eq(&self.cell, &of.cell) { self.fresh(name) } else { Ok(self) }
    }

    /// The number of a tensor that is not tracked. Equal views of one value have one.
    pub(crate) fn untracked_id(&self) -> TensorId {
        let number = *self.cell.number.get_or_init(autograd::next_id);
        let mut hasher = DefaultHasher::new();
        let whole = View::contiguous(self.shape().clone());
        if self.view == whole {
            return TensorId(number, 0);
        }
        self.view.hash(&mut hasher);
        TensorId(number, hasher.finish() | 1)
    }
}
