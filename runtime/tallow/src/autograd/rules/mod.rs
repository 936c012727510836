//! The gradients of operations that have a formula of their own, one file a family. Sources: the derivatives are calculus;
//! what happens where there is none (ties, zeros, edges of a clamp) follows PyTorch.

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod linalg;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod reduce;
