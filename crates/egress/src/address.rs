//! What kind of address one is: public, or one of the many that never go upstream unless a policy names them. Pure.
