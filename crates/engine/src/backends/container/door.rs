//! How init comes by its descriptors where its maker hands none on.
