"""A plugin as a third party writes one."""
