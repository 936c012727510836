//! Element-wise functions over slices.
