//! Host names in the one form in which they are compared, and spellings that are none. Pure.
