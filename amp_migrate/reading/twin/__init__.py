"""The native branch, scaler or class that a program already has beside its Apex one."""
