"""What a test asks: is Apex installed, is mixed precision on, was it asked before?"""
