//! Where a fault goes: what a step met that it cannot compute belongs to all values that are computed from its outputs, and
//! to no other. So the thread that made a bad index learns of it, and nobody else does.

use super::{Collected, Plan, memory::Place};
use crate::{Fault, locked::Token};
use std::sync::Arc;

impl Plan {
    /// The fault behind what lies in each buffer after a run, by the buffer's number: from `faults` of the run's steps, and
    /// from leaves that had one before.
    pub fn spread(&self, c: &Collected, token: &Token, faults: Vec<Fault>) -> Vec<Option<Arc<Fault>>> {
        let before = |place: &Place| match *place {
            Place::Leaf(leaf) => c.leaves[leaf as usize].state.get(token).fault.clone(),
            Place::Fresh(_) | Place::Slot(..) | Place::Work(..) => None,
        };
        let mut behind: Vec<Option<Arc<Fault>>> = self.places.iter().map(before).collect();
        let mut own: Vec<Option<Arc<Fault>>> = vec![None; self.program.steps.len()];
        for fault in faults {
            if let Some(own) = own.get_mut(fault.step) {
                own.get_or_insert_with(|| Arc::new(fault));
            }
        }
        for (step, own) in self.program.steps.iter().zip(own) {
            let met = own.or_else(|| step.inputs.iter().find_map(|&input| behind[input as usize].clone()));
            for (n, &output) in step.outputs.iter().enumerate() {
                // Memory is used again and again: what lay there before counts only where a part of it stays.
                let old = behind[output as usize].take().filter(|_| step.in_place && n == 0);
                behind[output as usize] = old.or_else(|| met.clone());
            }
        }
        behind
    }
}
