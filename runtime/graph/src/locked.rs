//! A cell that is read and written under one engine's lock only. Nodes keep their changing part in it, so that planning
//! walks thousands of nodes without taking a lock for each.

use std::cell::UnsafeCell;

/// Proof that an engine's lock is held. There is one for each engine, inside its mutex.
pub(crate) struct Token {
    id: u64,
}

impl Token {
    /// A token no other cell answers to. `id` must be unique in the process.
    pub(crate) fn new(id: u64) -> Self {
        Self { id }
    }
}

/// A value that belongs to the engine of number `id`.
pub(crate) struct Locked<T> {
    id: u64,
    value: UnsafeCell<T>,
}

// SAFETY: every access goes through the one token with this cell's id, borrowed shared for reading and exclusively for
// writing, or through an exclusive borrow of the cell itself. The token lives in a mutex, so two threads never hold it.
unsafe impl<T: Send + Sync> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) fn new(id: u64, value: T) -> Self {
        Self { id, value: UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn get<'a>(&'a self, token: &'a Token) -> &'a T {
        assert_eq!(token.id, self.id, "a node was read under another device's lock");
        // SAFETY: the shared borrow of the only token with this id excludes `get_mut` for its lifetime.
        unsafe { &*self.value.get() }
    }

    #[inline]
    pub(crate) fn get_mut<'a>(&'a self, token: &'a mut Token) -> &'a mut T {
        assert_eq!(token.id, self.id, "a node was written under another device's lock");
        // SAFETY: the exclusive borrow of the only token with this id excludes every other access for its lifetime.
        unsafe { &mut *self.value.get() }
    }

    /// Without the lock, for whoever owns the cell alone (a destructor).
    #[inline]
    pub(crate) fn owned(&mut self) -> &mut T {
        self.value.get_mut()
    }
}
